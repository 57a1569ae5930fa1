"""A node whose daemons start at once: forked from a process that has done the imports, which take most of a start.

From its first line on the daemon is the real one, with its real database, socket and run directories; a trial
of hundreds of deaths is about what comes after that line.
"""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from gpuqueue.shim.linux import become_subreaper
from gpuqueue.wire.procfs import read_process
from tests.crash.traffic import Away, ask
from tests.e2e.node import DEADLINE_S, Node, kill_leftovers


class QuickNode(Node):
    """As Node, for as many daemons as one likes, one after the other."""

    _nursery: "subprocess.Popen[bytes] | None" = None
    pid = 0

    def start(self, *, wait: bool = True) -> "QuickNode":
        if self._nursery is None:
            words = ["--config", str(self.config), "--state-dir", str(self.state), "--socket", str(self.socket)]
            self._nursery = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.nursery", str(self.log), "serve", *words, "--simulate", self.cards],
                env=self.env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        assert self._nursery.stdin is not None and self._nursery.stdout is not None
        self._nursery.stdin.write(b"\n")
        self._nursery.stdin.flush()
        self.pid = int(self._nursery.stdout.readline())
        if wait:
            self.until_ready()
        return self

    def until_ready(self) -> None:
        self.until(self._answers, "the daemon answers")

    def _answers(self) -> bool:
        assert self.lives, f"the daemon ended by itself:\n{self.tail()}"
        try:
            return ask(self.socket, "GET", "/v1/node")[0] == 200
        except Away:
            return False

    @property
    def lives(self) -> bool:
        process = read_process(self.pid)
        return process is not None and not process.dead

    def freeze(self) -> None:
        """It stands still when this returns."""
        os.kill(self.pid, signal.SIGSTOP)
        while (process := read_process(self.pid)) is None or process.state != "T":
            assert process is not None, f"the daemon ended by itself:\n{self.tail()}"
            time.sleep(0.001)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        self._end(signal.SIGTERM)
        return 0  # nobody waits for it

    def close(self) -> None:
        if self._nursery is not None:
            if self.pid and self.lives:
                self.kill()
            self._nursery.communicate()
        kill_leftovers(self.state)

    def _end(self, number: int) -> None:
        descriptor = os.pidfd_open(self.pid)
        signal.pidfd_send_signal(descriptor, number)
        ended, _, _ = select.select([descriptor], [], [], DEADLINE_S)
        os.close(descriptor)
        assert ended, f"the daemon does not end:\n{self.tail()}"


def nurse(log: Path, words: list[str]) -> None:
    """Forks a daemon for every line that comes, and answers with its pid. Buries orphans at once, as a good init does:
    the status of a job that ends while daemon and shim are dead is then lost, on every machine."""
    import gpuqueue.daemon.serve  # noqa: F401 - once, for all that are to come
    from gpuqueue.daemon.main import main

    become_subreaper()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while sys.stdin.buffer.readline():
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            for number, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), output, output)):
                os.dup2(descriptor, number)
            main(words)  # does not return
        print(pid, flush=True)


if __name__ == "__main__":
    nurse(Path(sys.argv[1]), sys.argv[2:])
