"""What /proc says about processes: who one is for good, and which ones belong to an attempt.

Shim and backend must agree on it, so both read it here. Reading costs one pass over /proc; nothing is kept.
"""

import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gpuqueue.wire.rundir import MARKER_ENV, ProcessIdentity

_DEAD = "ZX"
_NEVER_EXECUTED = 0x40  # PF_FORKNOEXEC
_KERNEL = 2  # kthreadd: its children have no environment worth reading


@dataclass(frozen=True, slots=True)
class Process:
    """One line of /proc/PID/stat. `cpu_ticks` includes the children that were waited for."""

    pid: int
    parent: int
    session: int
    state: str
    start_ticks: int
    threads: int
    cpu_ticks: int
    flags: int
    wait_status: int  # of a zombie, where the reader may see it; else 0

    @property
    def dead(self) -> bool:
        # A main thread that left while others work on looks like a zombie.
        return self.state in _DEAD and self.threads <= 1

    @property
    def has_executed(self) -> bool:
        """False for a fork that still is what its parent was, or died so."""
        return not self.flags & _NEVER_EXECUTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """By what the processes of one attempt are recognised. `monitor` is the shim, if it lives: it is a child
    subreaper, so every orphan of the job stays below it. `known` are processes that were seen to belong."""

    marker: str
    job: ProcessIdentity
    monitor: ProcessIdentity | None = None
    cgroup: str | None = None
    known: frozenset[tuple[int, int]] = frozenset()  # (pid, start ticks)


@cache
def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def booted_unix() -> int:
    """The second at which this machine came up."""
    lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("btime "))


def read_process(pid: int) -> Process | None:
    """The process now, a zombie included; None where there is none."""
    text = _read(f"/proc/{pid}/stat")
    if not text:
        return None
    # The command name may hold spaces and brackets: fields are counted from its last bracket.
    after = text[text.rindex(b")") + 2 :].split()
    return Process(
        pid=pid,
        parent=int(after[1]),
        session=int(after[3]),
        state=chr(after[0][0]),
        start_ticks=int(after[19]),
        threads=int(after[17]),
        cpu_ticks=sum(int(ticks) for ticks in after[11:15]),
        flags=int(after[6]),
        wait_status=int(after[49]),
    )


def all_processes() -> dict[int, Process]:
    found = (read_process(int(name)) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208
    return {process.pid: process for process in found if process is not None}


def identify(pid: int) -> ProcessIdentity | None:
    process = read_process(pid)
    if process is None:
        return None
    return ProcessIdentity(boot_id=boot_id(), pid=pid, start_ticks=process.start_ticks)


def find(identity: ProcessIdentity) -> Process | None:
    """The process of that identity, a zombie included; None once it is gone, whoever has its pid now."""
    process = read_process(identity.pid)
    if process is None or process.start_ticks != identity.start_ticks or boot_id() != identity.boot_id:
        return None
    return process


def lives(identity: ProcessIdentity) -> bool:
    process = find(identity)
    return process is not None and not process.dead


def send_signal(process: Process, number: int) -> bool:
    """False where the process is gone or may not be signalled; never reaches another that got its pid."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        now = read_process(process.pid)
        if now is None or now.start_ticks != process.start_ticks:
            return False
        signal.pidfd_send_signal(descriptor, number)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def members(attempts: Sequence[Traces], table: Mapping[int, Process] | None = None) -> list[list[Process]]:
    """For each attempt its living processes: what descends from the job or its shim, is in the job's session
    or cgroup, carries the marker, or was known before. One pass over /proc for all of them."""
    table = all_processes() if table is None else table
    children: dict[int, list[int]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process.pid)
    found = [_kin(traces, table, children) for traces in attempts]
    by_marker = {traces.marker: index for index, traces in enumerate(attempts)}
    classified: set[int] = set().union(*found) if found else set()
    for process in table.values():
        # Those already found are left out: reading the environment of one that hangs in the kernel may hang.
        if process.pid in classified or process.dead or process.parent == _KERNEL:
            continue
        index = by_marker.get(_marker_of(process.pid))
        if index is not None:
            found[index] |= {process.pid} | _below([process.pid], children)
    return [
        [table[pid] for pid in sorted(pids) if pid in table and not table[pid].dead and not _is_monitor(pid, traces)]
        for pids, traces in zip(found, attempts, strict=True)
    ]


def _kin(traces: Traces, table: Mapping[int, Process], children: Mapping[int, list[int]]) -> set[int]:
    roots = [pid for pid, start_ticks in traces.known if pid in table and table[pid].start_ticks == start_ticks]
    roots += _cgroup_pids(traces.cgroup)
    leader = table.get(traces.job.pid)
    if leader is None or leader.start_ticks == traces.job.start_ticks:  # else the number has a new owner
        roots += [process.pid for process in table.values() if process.session == traces.job.pid]
    monitor = table.get(traces.monitor.pid) if traces.monitor else None
    if monitor and traces.monitor and monitor.start_ticks == traces.monitor.start_ticks:
        # The shim's own short-lived helpers share its session; the job left it before anything else.
        below = children.get(monitor.pid, [])
        roots += [pid for pid in below if table[pid].session != monitor.session]
    return set(roots) | _below(roots, children)


def _below(roots: Iterable[int], children: Mapping[int, list[int]]) -> set[int]:
    found: set[int] = set()
    todo = list(roots)
    while todo:
        for child in children.get(todo.pop(), ()):
            if child not in found:
                found.add(child)
                todo.append(child)
    return found


def _is_monitor(pid: int, traces: Traces) -> bool:
    return traces.monitor is not None and pid == traces.monitor.pid


def _cgroup_pids(directory: str | None) -> list[int]:
    """Also of cgroups that the job made below its own."""
    if directory is None:
        return []
    pids: list[int] = []
    for folder, _, files in os.walk(directory):
        if "cgroup.procs" in files:
            pids += [int(line) for line in (_read(f"{folder}/cgroup.procs") or b"").split()]
    return pids


def _marker_of(pid: int) -> str:
    environment = b"\0" + (_read(f"/proc/{pid}/environ") or b"")
    _, _, rest = environment.partition(b"\0" + MARKER_ENV.encode() + b"=")
    return rest.partition(b"\0")[0].decode("ascii", "replace")


def _read(path: str) -> bytes | None:
    with suppress(OSError):  # gone, or not ours to read: both mean that it says nothing
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            chunks = []
            while chunk := os.read(descriptor, 65536):
                chunks.append(chunk)
            return b"".join(chunks)
        finally:
            os.close(descriptor)
    return None
