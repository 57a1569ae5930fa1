"""A node for end-to-end tests: the real daemon on simulated cards, the real `gq`, real processes."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 60.0
SIMJOB = (sys.executable, "-m", "gpuqueue.simjob")


class Node:
    """One daemon with a state directory of its own. `config` is TOML text; times in it should be seconds. `under`
    are words before the daemon's command line, for example those of setpriv. Without `cards` they are NVML's."""

    def __init__(
        self,
        directory: Path,
        *,
        cards: str = "32607M",
        config: str = "",
        env: Mapping[str, str] | None = None,
        under: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.cards = cards
        self.under = under
        self.socket = directory / "s"
        self.state = directory / "state"
        self.config = directory / "config.toml"
        self.config.write_text(config)
        self.log = directory / "daemon.log"
        self.work = directory / "work"
        self.work.mkdir(exist_ok=True)
        self.work.chmod(0o777)
        self.env = base_env() | {"GQ_SOCKET": str(self.socket), "NO_COLOR": "1"} | dict(env or {})
        self.process: subprocess.Popen[bytes] | None = None

    # -- the daemon ------------------------------------------------------------------------------------------

    def start(self, *, wait: bool = True) -> "Node":
        command = [*self.under, sys.executable, "-m", "gpuqueue.daemon", "serve", "--config", str(self.config)]
        command += ["--state-dir", str(self.state), "--socket", str(self.socket)]
        command += ["--simulate", self.cards] if self.cards else []
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, env=self.env, stdout=log, stderr=log, cwd=self.directory)
        if wait:
            self.until(self._answers, "the daemon answers")
        return self

    def _answers(self) -> bool:
        if self.process is not None and self.process.poll() is not None:
            raise AssertionError(f"the daemon ended with {self.process.returncode}:\n{self.log.read_text()[-4000:]}")
        try:
            self.jobs()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """As a crash: no chance to clean up."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(timeout=DEADLINE_S)

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """Ends the daemon and whatever is left of its jobs; then nothing of the test is on the machine."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        kill_leftovers(self.state)

    # -- gq --------------------------------------------------------------------------------------------------

    def gq(
        self,
        *words: str,
        check: bool = True,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        umask: int = -1,
        timeout: float = DEADLINE_S,
    ) -> "subprocess.CompletedProcess[str]":
        """`user` runs it as that Unix account, which takes root; `umask` is the shell's."""
        who = ["gq"] if user is None else ["tests.e2e.as_user", user]
        command = [sys.executable, "-m", *who, *words]
        done = subprocess.run(
            command,
            env=self.env | dict(env or {}),
            cwd=cwd or self.work,
            umask=umask,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check and done.returncode != 0:
            said = f"{done.stdout}{done.stderr}\n{self.tail()}"
            raise AssertionError(f"gq {' '.join(words)} -> {done.returncode}\n{said}")
        return done

    def submit(self, *words: str, **options: Any) -> int:
        return int(self.gq("submit", "-q", *words, **options).stdout.strip())

    def simjob(self, vram: str, *words: str, options: Sequence[str] = (), **others: Any) -> int:
        """Submits a stand-in training that takes `vram` and declares the same, unless `options` declare another."""
        declared = [] if "--vram" in options else ["--vram", vram]
        return self.submit(*declared, *options, "--", *SIMJOB, "--vram", vram, *words, **others)

    # -- what `gq … --json` prints, without a process for each look: polling must not be what keeps the machine busy --

    def ask(self, path: str) -> Any:
        """What the daemon answers to GET, as this test's own user."""
        connection = _Connection(self.socket)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        assert answer.status == 200, f"{path} -> {answer.status}: {body.decode()}"
        return json.loads(body)

    def jobs(self) -> list[dict[str, Any]]:
        answer: list[dict[str, Any]] = self.ask("/v1/jobs?all=1")
        return answer

    def job(self, job_id: int) -> dict[str, Any]:
        return next(job for job in self.jobs() if job["id"] == job_id)

    def show(self, job_id: int) -> dict[str, Any]:
        answer: dict[str, Any] = self.ask(f"/v1/jobs/{job_id}")
        return answer

    def states(self) -> dict[int, str]:
        return {job["id"]: job["state"] for job in self.jobs()}

    def card(self, index: int = 0) -> dict[str, Any]:
        return self.gpus()[index]

    def gpus(self) -> list[dict[str, Any]]:
        answer: list[dict[str, Any]] = self.ask("/v1/cards")
        return answer

    def logs(self, job_id: int, **options: Any) -> str:
        return self.gq("logs", str(job_id), **options).stdout

    def why(self, job_id: int) -> str:
        return self.gq("why", str(job_id)).stdout.strip()

    def wait(self, job_id: int, timeout: float = DEADLINE_S) -> int:
        return self.gq("wait", str(job_id), check=False, timeout=timeout).returncode

    # -- waiting ---------------------------------------------------------------------------------------------

    def until(self, holds: Callable[[], Any], what: str, timeout: float = DEADLINE_S) -> Any:
        """Polls until `holds` answers something true, and returns that; fails at the deadline, naming `what`."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            answer = holds()
            if answer:
                return answer
            time.sleep(0.05)
        status = self.gq("status", "--all", check=False).stdout
        raise AssertionError(f"not within {timeout:.0f} s: {what}\n{status}\n{self.tail()}")

    def until_state(self, job_id: int, *states: str, timeout: float = DEADLINE_S) -> dict[str, Any]:
        def reached() -> dict[str, Any] | None:
            job = self.job(job_id)
            return job if job["state"] in states else None

        job: dict[str, Any] = self.until(reached, f"job {job_id} is {' or '.join(states)}", timeout)
        return job

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""

    # -- the machine -----------------------------------------------------------------------------------------

    def run_directory(self, job_id: int, attempt: int = 1) -> Path:
        return self.state / "runs" / f"{job_id}.{attempt}"

    def alive(self, job_id: int, attempt: int = 1) -> dict[str, Any]:
        record: dict[str, Any] = json.loads((self.run_directory(job_id, attempt) / "alive.json").read_text())
        return record

    def stranger(self, vram: str, *words: str) -> "subprocess.Popen[bytes]":
        """A process outside the queue that holds VRAM on the simulated card."""
        return subprocess.Popen(
            [*SIMJOB, "--vram", vram, *words],
            env=self.env | {"GQ_SIM_DIR": str(self.state / "sim")},
            stdout=subprocess.DEVNULL,
            cwd=self.work,
        )


class _Connection(http.client.HTTPConnection):
    """HTTP over the daemon's Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=DEADLINE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))  # with a time limit it would not wait for its turn, but fail
        self.sock.settimeout(DEADLINE_S)


def base_env() -> dict[str, str]:
    """This test's own environment, able to import the project, and without another queue's variables."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("GQ_", "CUDA_", "NVIDIA_"))}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "cli")])
    return env


def kill_leftovers(state: Path) -> None:
    """SIGKILL for every process that has the state directory in its command line or environment, as jobs on simulated
    cards have even where they shed their marker, or that carries one of its markers."""
    needle = os.fsencode(str(state))
    markers = set()
    for spec in state.glob("runs/*/spec.json"):
        try:
            markers.add(json.loads(spec.read_text())["marker"].encode())
        except (OSError, ValueError, KeyError):
            continue
    for _ in range(20):
        found = [pid for pid in pids() if pid != os.getpid() and _belongs(pid, needle, markers)]
        if not found:
            return
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.05)


def pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _belongs(pid: int, needle: bytes, markers: set[bytes]) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return needle in command or needle in environment or any(marker in environment for marker in markers)
