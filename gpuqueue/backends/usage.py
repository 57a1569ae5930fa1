"""What the processes of each attempt have used: whole sums that only grow, from readings that go up and down."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuqueue.backends import cgroups, traffic
from gpuqueue.core.readings import ProcessUse
from gpuqueue.wire.procfs import Process, Traces, members

_MS_PER_TICK = 1000 // os.sysconf("SC_CLK_TCK")
Key = tuple[int, int]


@dataclass(slots=True)
class _Sum:
    """Adds up growth. A reading falls when a process ends unwaited: what it had used stays in the total."""

    total: int = 0
    last: int = 0

    def add(self, reading: int) -> int:
        self.total += max(reading - self.last, 0)
        self.last = reading
        return self.total


@dataclass(slots=True)
class _Account:
    cpu_ms: _Sum = field(default_factory=_Sum)
    file_bytes: _Sum = field(default_factory=_Sum)
    tcp_bytes: dict[int, _Sum] = field(default_factory=dict)  # by the socket's inode
    closed_tcp_bytes: int = 0
    known: frozenset[Key] = frozenset()


class Usage:
    """Remembers per attempt what was seen, also which processes belong: who once did, does until it ends."""

    def __init__(self) -> None:
        self._accounts: dict[Key, _Account] = {}

    def known(self, key: Key) -> frozenset[Key]:
        account = self._accounts.get(key)
        return account.known if account else frozenset()

    def read(self, traces: Mapping[Key, Traces], table: Mapping[int, Process]) -> dict[Key, ProcessUse]:
        """`table` is /proc as it was read just now. Attempts that are no longer asked for are forgotten."""
        self._accounts = {key: self._accounts.get(key, _Account()) for key in traces}
        found = members(list(traces.values()), table)
        tcp = traffic.tcp_bytes() if traces else {}
        return {key: self._use(key, traces[key], processes, tcp) for key, processes in zip(traces, found, strict=True)}

    def _use(self, key: Key, traces: Traces, processes: list[Process], tcp: Mapping[int, int]) -> ProcessUse:
        account = self._accounts[key]
        account.known = frozenset((process.pid, process.start_ticks) for process in processes)
        cpu_ms = cgroups.cpu_ms(traces.cgroup) if traces.cgroup else None
        if cpu_ms is None:
            cpu_ms = sum(process.cpu_ticks for process in processes) * _MS_PER_TICK
        file_bytes = account.file_bytes.add(sum(_file_bytes(process.pid) for process in processes))
        return ProcessUse(
            pids=frozenset(process.pid for process in processes),
            cpu_ms=account.cpu_ms.add(cpu_ms),
            io_bytes=file_bytes + _tcp_bytes(account, processes, tcp),
        )


def _tcp_bytes(account: _Account, processes: list[Process], tcp: Mapping[int, int]) -> int:
    """A socket that several processes share counts once; a closed one leaves what was last seen."""
    held = set().union(*(traffic.sockets_of(process.pid) for process in processes)) & tcp.keys()
    for inode in account.tcp_bytes.keys() - held:
        account.closed_tcp_bytes += account.tcp_bytes.pop(inode).total
    for inode in held:
        account.tcp_bytes.setdefault(inode, _Sum()).add(tcp[inode])
    return account.closed_tcp_bytes + sum(one.total for one in account.tcp_bytes.values())


def _file_bytes(pid: int) -> int:
    """Through read and write, or through the page cache of mapped files, whichever is more."""
    try:
        with open(f"/proc/{pid}/io", "rb") as file:  # noqa: PTH123
            values = {name: int(value) for name, value in (line.split(b": ") for line in file)}
    except OSError:  # gone, or not ours to read
        return 0
    return max(values[b"rchar"], values[b"read_bytes"]) + max(values[b"wchar"], values[b"write_bytes"])
