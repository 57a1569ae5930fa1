"""What the adapters report about the world: cards as the driver reads them, attempts as a backend sees them."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    pid: int
    used_mib: int | None  # None: hidden by the driver (M4)
    gpu_percent: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CardReading:
    """One card as read now. `fault` is set when the card is lost or cannot be read: the other numbers are
    then the last that were known, or 0. `gone` says that the card itself is lost, so that nothing can go on
    there; a card that merely cannot be read now is not gone. `processes` is None where the driver hides
    per-process memory."""

    uuid: str
    index: int  # rank by PCI bus id
    name: str
    pci_bus_id: str
    total_mib: int
    reserved_mib: int
    used_mib: int  # without reserved
    processes: tuple[GpuProcess, ...] | None
    gpu_percent: int | None = None
    temperature_c: int | None = None
    too_hot: bool = False  # at or over its slowdown temperature (H2)
    fault: str | None = None
    gone: bool = False
    minor: int | None = None  # /dev/nvidiaN


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReading:
    """All cards at one instant. `fault`: nothing could be read at all (no driver, library mismatch); a
    fault never means that there is no card."""

    cards: tuple[CardReading, ...]
    fault: str | None = None
    driver: str = ""


class ProbeState(StrEnum):
    ABSENT = "absent"  # no trace that the attempt was ever started: safe to start, or to call not started
    ALIVE = "alive"
    EXITED = "exited"
    UNKNOWN = "unknown"  # never frees a card, never kills, never deletes


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What a backend knows of one attempt. `ended` fields speak only with EXITED; `old_boot` says that the
    attempt belongs to a boot that is over (R6). `main_pid` is the job's own first process, dead or alive."""

    state: ProbeState
    why: str = ""  # with UNKNOWN; with ABSENT where a start came to nothing
    exit_status: int | None = None
    signal: int | None = None
    lost: bool = False
    failed_start: str | None = None
    lasting: bool = False  # with failed_start: another try would only meet it again (R5)
    oom_kills: int | None = None  # its processes that the kernel killed for want of host memory; None: not counted
    main_pid: int | None = None
    stopped: bool = False
    killed: bool = False
    leftover_pids: tuple[int, ...] = ()
    ended_unix: float | None = None
    old_boot: bool = False
    monitored: bool = True  # with ALIVE: a shim or adopter watches it
    started: bool = True  # with ALIVE: the job itself runs; until then its shim makes it ready
    resumed_from: str | None = None
    checkpoint: str | None = None
    checkpoint_step: int | None = None
    checkpoint_unix: float | None = None
    checkpoint_skipped: tuple[str, ...] = ()

    @property
    def progress_mark(self) -> int | None:
        """Grows with each newer checkpoint: its step, or where the user's own command names the checkpoint and no
        step is known, the second of its completion."""
        if self.checkpoint_step is not None or self.checkpoint_unix is None:
            return self.checkpoint_step
        return int(self.checkpoint_unix)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUse:
    """What the processes of one attempt have used since they started: monotone as long as pids live."""

    pids: frozenset[int]
    cpu_ms: int
    io_bytes: int
