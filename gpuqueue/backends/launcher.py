"""Starting shims and adopters as processes of their own, in the best containment that the machine offers."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from gpuqueue.backends import cgroups, systemd
from gpuqueue.wire.errors import ErrorCode, GpuqueueError
from gpuqueue.wire.rundir import ERRORS, Spec

AUTO = "auto"
Key = tuple[int, int]

_SHIM = Path(__file__).resolve().parents[1] / "shim" / "__main__.py"
# Isolated, without site-packages: a fast start, and nothing of the daemon's environment reaches it.
_PYTHON = [sys.executable, "-I", "-S", "-X", "utf8"]
_ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}
_ADOPT_AGAIN_S = 5
_UNIT_START_S = 10
_FORGET_S = 60


@dataclass(frozen=True, slots=True)
class _Launch:
    process: subprocess.Popen[bytes]
    at: float
    adopts: bool


class Launcher:
    """`containment` is the kind that is used: "systemd", "cgroup" or "session"; `limits_memory` whether it can hold a
    job to its --mem."""

    def __init__(self, runs_dir: Path, asked: str) -> None:
        self._runs_dir = runs_dir
        self._cgroups: Path | None = None
        self.containment = self._choose(asked)
        self.limits_memory = self._limits_memory()
        self._launches: dict[Key, _Launch] = {}

    def contained(self, spec: Spec) -> Spec:
        """The specification with what is to hold its processes."""
        cgroup = None
        if self.containment == "systemd":
            cgroup = systemd.cgroup_of(self._name(spec.job_id, spec.attempt))
        elif self._cgroups is not None:
            cgroup = str(self._cgroups / self._name(spec.job_id, spec.attempt))
        return replace(spec, containment=self.containment, cgroup=cgroup)

    def start(self, spec: Spec, run_dir: Path) -> int:
        """The pid of what was started."""
        return self._launch(spec, run_dir, adopts=False)

    def adopt(self, spec: Spec, run_dir: Path) -> int | None:
        """None where an adopter is on its way, or one failed just now. Several would do no harm: a lock in the run
        directory sees to it that one stays."""
        last = self._launches.get((spec.job_id, spec.attempt))
        tried_now = last is not None and last.adopts and time.monotonic() - last.at < _ADOPT_AGAIN_S
        if tried_now or (last is not None and last.adopts and last.process.poll() is None):
            return None
        return self._launch(spec, run_dir, adopts=True)

    def remove_cgroup(self, job_id: int, attempt: int) -> None:
        """One that a shim had to leave, because what was in there survived SIGKILL."""
        if self._cgroups is not None:
            with suppress(OSError):  # its shim removed it, as ever
                (self._cgroups / self._name(job_id, attempt)).rmdir()

    def is_starting(self, key: Key) -> bool:
        """Whether what this daemon launched for the attempt may still come to claim it."""
        launch = self._launches.get(key)
        if launch is None:
            return False
        # systemd-run returns before the shim that it asked for has claimed anything.
        young = self.containment == "systemd" and time.monotonic() - launch.at < _UNIT_START_S
        return launch.process.poll() is None or young

    def pids(self) -> set[int]:
        """Of the launched ones that still run. The ended are waited for, and forgotten after a while."""
        now = time.monotonic()
        for key, launch in list(self._launches.items()):
            if launch.process.poll() is not None and now - launch.at > _FORGET_S:
                del self._launches[key]
        return {launch.process.pid for launch in self._launches.values() if launch.process.poll() is None}

    def _launch(self, spec: Spec, run_dir: Path, adopts: bool) -> int:
        command = [*_PYTHON, str(_SHIM), *(["--adopt"] if adopts else []), str(run_dir)]
        if spec.containment == "systemd":
            unit = self._name(spec.job_id, spec.attempt) + ("-adopter" if adopts else "")
            command = systemd.command(unit, spec, run_dir / ERRORS, command)
        with (run_dir / ERRORS).open("ab") as errors:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                env=_ENVIRONMENT,
                cwd="/",
                start_new_session=True,
            )
        self._launches[spec.job_id, spec.attempt] = _Launch(process, time.monotonic(), adopts)
        return process.pid

    def _choose(self, asked: str) -> str:
        """The best first. A cgroup is made only where it is to be used: where systemd runs, they are systemd's."""
        if asked in (AUTO, "systemd") and systemd.available():
            return "systemd"
        if asked in (AUTO, "cgroup"):
            self._cgroups = cgroups.find_base()
            if self._cgroups is not None:
                return "cgroup"
        if asked not in (AUTO, "session"):
            raise GpuqueueError(
                ErrorCode.UNAVAILABLE,
                f"containment {asked!r} is not to be had on this machine",
                hint=f"{AUTO!r} takes the best that there is; 'session' is to be had everywhere",
            )
        return "session"

    def _limits_memory(self) -> bool:
        if self.containment == "systemd":
            return systemd.limits_memory()
        return self._cgroups is not None and cgroups.limits_memory(self._cgroups)

    def _name(self, job_id: int, attempt: int) -> str:
        return f"gq-{job_id}-{attempt}-{cgroups.name_of(self._runs_dir)}"
