"""What holds the processes of one attempt together: finding them, limiting them, signalling and killing them."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from gpuqueue.wire.procfs import Process, Traces, members, send_signal
from gpuqueue.wire.rundir import ProcessIdentity, Spec

_CPU_PERIOD_US = 100_000


class Containment:
    """The best that there is: a cgroup v2 directory if the spec names one, always the session, the descent
    and the marker. Once seen to belong, a process belongs until it dies, whatever it does to hide."""

    def __init__(self, spec: Spec, monitor: ProcessIdentity | None) -> None:
        self._spec = spec
        self._monitor = monitor
        self._job: ProcessIdentity | None = None
        self._known: frozenset[tuple[int, int]] = frozenset()
        self.cgroup = self._make_cgroup()

    @property
    def kind(self) -> str:
        return self._spec.containment if self.cgroup or self._spec.containment != "cgroup" else "session"

    def make_room(self) -> None:
        """In a unit, before the shim has children: it moves into a cgroup beside the job's, since controllers are
        passed down only from one that holds no process itself."""
        if self.cgroup is None or self._spec.containment != "systemd":
            return
        unit = self.cgroup.parent
        beside = unit / "shim"
        with suppress(OSError):  # then the controllers stay at the unit, and `hold` says what is not enforced
            beside.mkdir(exist_ok=True)
        _write(beside / "cgroup.procs", "0")
        for controller in ("memory", "cpu"):
            _write(unit / "cgroup.subtree_control", f"+{controller}")

    def hold(self, job: ProcessIdentity) -> list[str]:
        """Takes the waiting job in, before its first instruction. Returns what is to be said in its log."""
        self.watch(job)
        if self.cgroup and not _write(self.cgroup / "cgroup.procs", str(job.pid)):
            self.cgroup = None
        return self._limits(job.pid)

    def watch(self, job: ProcessIdentity) -> None:
        self._job = job

    def processes(self) -> list[Process]:
        """Every living process of the attempt; empty before `hold` or `watch`."""
        if self._job is None:
            return []
        cgroup = str(self.cgroup) if self.cgroup else None
        traces = Traces(
            marker=self._spec.marker, job=self._job, monitor=self._monitor, cgroup=cgroup, known=self._known
        )
        found = members([traces])[0]
        self._known = frozenset((process.pid, process.start_ticks) for process in found)
        return found

    def signal(self, number: int) -> None:
        """To every process (Z2). A stopped one is woken, since it could not obey otherwise."""
        found = self.processes()
        for process in found:
            send_signal(process, number)
        for process in found:
            send_signal(process, signal.SIGCONT)

    def kill(self) -> None:
        """One round; whoever forked meanwhile is caught by the next."""
        if self.cgroup:
            _write(self.cgroup / "cgroup.kill", "1")
        for process in self.processes():
            send_signal(process, signal.SIGKILL)

    def oom_kills(self) -> int | None:
        """How many of its processes the kernel killed for want of host memory, under its own limit or the machine's.
        None where nobody counts: no cgroup of its own, or no memory controller there."""
        return oom_kills(self.cgroup / "memory.events") if self.cgroup else None

    def remove(self) -> None:
        """Once it is empty."""
        if self.cgroup:
            for folder, _, _ in os.walk(self.cgroup, topdown=False):
                with suppress(OSError):
                    Path(folder).rmdir()

    def _make_cgroup(self) -> Path | None:
        if self._spec.cgroup is None:
            return None
        path = Path(self._spec.cgroup)
        try:
            path.mkdir(exist_ok=True)
            path.chmod(0o755)  # whatever the umask: runtimes size themselves by the limits of their own cgroup
        except OSError:
            return None
        return path

    def _limits(self, pid: int) -> list[str]:
        """J6, as far as the machine can."""
        mem_mib, cpus = self._spec.mem_mib, self._spec.cpus
        if cpus and not self._limit("cpu.max", f"{cpus * _CPU_PERIOD_US} {_CPU_PERIOD_US}"):
            _pin_to_cores(pid, self._spec.job_id, cpus)
        if mem_mib and not self._limit("memory.max", str(mem_mib * 1024 * 1024)):
            return [f"--mem {mem_mib}M is not enforced: this machine offers no memory controller"]
        if mem_mib:
            # A trainer that loses one worker to the OOM killer hangs: all go together.
            self._limit("memory.oom.group", "1")
        return []

    def _limit(self, file: str, value: str) -> bool:
        return self.cgroup is not None and _write(self.cgroup / file, value)


def oom_kills(events: Path) -> int | None:
    """The kernel's count in a `memory.events` of cgroup v2; None where there is no such file."""
    try:
        counts = dict(line.split() for line in events.read_text(encoding="ascii").splitlines())
    except OSError:
        return None
    return int(counts["oom_kill"]) if "oom_kill" in counts else None


def _pin_to_cores(pid: int, job_id: int, count: int) -> None:
    """Without a cpu controller: a set of cores of its own, taken in turn by job id."""
    available = sorted(os.sched_getaffinity(0))
    first = job_id * count
    os.sched_setaffinity(pid, {available[(first + i) % len(available)] for i in range(min(count, len(available)))})


def _write(path: Path, text: str) -> bool:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)
    except OSError:
        return False
    return True
