"""The job of the crash test. It says what it does in a file of its own, so that the truth does not depend on gpuqueue.

    start UNIQUE ATTEMPT NANOSECONDS RESUMED_FROM      before anything else
    overlap UNIQUE ATTEMPT                             a process of another attempt was still there
    end UNIQUE ATTEMPT CODE                            the status that it then really ends with, 128 + n for signal n

Each line is appended and fsynced. The file stays locked while any process of the attempt lives, since children
inherit the lock: an attempt that cannot get it overlaps another one, and after the test a free lock means that
nobody is left. Stdlib only: it runs as `python -I -S worker.py FILE UNIQUE PLAN`.
"""

import fcntl
import json
import os
import resource
import signal
import sys
import time
from typing import Any, NoReturn

CHILD_S = 300
STOPPED = 128 + signal.SIGTERM


class Worker:
    def __init__(self, file: str, unique: str, plan: dict[str, Any]) -> None:
        self._truth = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        os.set_inheritable(self._truth, True)
        self._unique = unique
        self._plan = plan
        self._attempt = int(os.environ["GQ_ATTEMPT"])

    def run(self) -> NoReturn:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGTERM, signal.SIG_IGN if self._plan["ignore_term"] else self._on_term)
        free = self._lock()
        self._say("start", str(time.monotonic_ns()), os.environ.get("GQ_RESUME_FROM") or "-")
        if not free:
            self._say("overlap")
        if self._plan["child"]:
            self._have_a_child(self._plan["child"])
        self._end(self._work())

    def _work(self) -> int:
        """What the attempt ends with: its status, or minus the signal that it sends to itself."""
        simjob = self._plan["simjob"]
        if simjob:
            pid = os.posix_spawn(sys.executable, [sys.executable, "-m", "gpuqueue.simjob", *simjob], os.environ)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        time.sleep(self._plan["run_s"])
        codes: list[int] = self._plan["codes"]
        return codes[min(self._attempt, len(codes)) - 1]

    def _end(self, code: int) -> NoReturn:
        # From here on a stop signal changes nothing: what was said is what comes.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        self._say("end", str(code if code >= 0 else 128 - code))
        if code >= 0:
            os._exit(code)
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
        os._exit(127)  # not reached

    def _on_term(self, *_: object) -> None:
        self._end(STOPPED)

    def _have_a_child(self, kind: str) -> None:
        """One that outlives its parent: in the same session, escaped from it, or deaf to the stop signal as well."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # the child must not speak for its parent
        if os.fork():
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            return
        signal.signal(signal.SIGTERM, signal.SIG_IGN if kind == "deaf" else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        if kind != "near":
            os.setsid()
            if os.fork():
                os._exit(0)
        time.sleep(CHILD_S)
        os._exit(0)

    def _lock(self) -> bool:
        try:
            fcntl.flock(self._truth, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _say(self, what: str, *words: str) -> None:
        os.write(self._truth, " ".join([what, self._unique, str(self._attempt), *words]).encode() + b"\n")
        os.fsync(self._truth)


Worker(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])).run()
