"""All that is known at one instant, `now` included: the only thing that plan and supervise see."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuqueue.core.model import Attempt, Job
from gpuqueue.wire.states import JobClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Stranger:
    """A process that holds VRAM and belongs to no job (F1). `used_mib` None where the driver hides it."""

    pid: int
    user: str
    command: str
    used_mib: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One GPU at this instant. `capacity_mib` is C of the rules: total - reserved - margin (M2).
    `hidden` is M4: per-process memory cannot be read, so `used_mib` alone says what physically fits."""

    uuid: str
    index: int  # rank by PCI bus id, which is also what CUDA_VISIBLE_DEVICES means by it (P2)
    name: str
    pci_bus_id: str
    capacity_mib: int
    held_back_mib: int  # H
    used_mib: int
    foreign_mib: int  # F, from M3
    strangers: tuple[Stranger, ...] = ()
    hidden: bool = False
    drained: str | None = None  # why nothing new starts here
    gone: bool = False  # the card itself is lost (H1)
    gpu_percent: int | None = None
    temperature_c: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """What one attempt holds on one card. `measured_mib` is what all its processes hold there together,
    children included; None where it cannot be known (M4)."""

    job_id: int
    account: str
    user: str
    job_class: JobClass
    card: str
    claim_mib: int
    charge_mib: int
    measured_mib: int | None
    started_at: int
    releasing: bool = False  # ended, not yet measured free: charged all the same (Z3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one attempt did from `at - span_s` to `at`, averaged. None where the driver hides it."""

    at: int
    span_s: int
    gpu_permille: int | None
    cpu_millicores: int
    io_kib_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """The samples of a running attempt without a gap, oldest first: a gap starts the list again (Z5).
    `checkpoint_at` is when the newest complete checkpoint was first seen (I1)."""

    samples: tuple[Sample, ...] = ()
    checkpoint_at: int | None = None
    checkpoint_step: int | None = None
    idle_warned: int = 0  # warnings already given: 0, 1 (50 %), 2 (80 %)
    stalled_warned: bool = False
    limit_warned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Whose quota. `nominal` is resolved already (Q1); `usage` is decayed MiB-seconds over the weight (S1)."""

    name: str
    train_mib: int
    light_mib: int
    usage: int = 0
    weight: int = 1
    idle_exempt: bool = False

    def nominal(self, job_class: JobClass) -> int:
        return self.train_mib if job_class is JobClass.TRAIN else self.light_mib


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    now: int
    cards: tuple[Card, ...]
    jobs: tuple[Job, ...]  # every job that has not ended
    attempts: Mapping[int, Attempt] = field(default_factory=dict)  # job id -> its live attempt
    leases: tuple[Lease, ...] = ()  # everything charged, releasing ones of ended jobs included
    accounts: Mapping[str, Account] = field(default_factory=dict)
    activity: Mapping[int, Activity] = field(default_factory=dict)  # job id ->
    cards_fault: str | None = None  # why the cards cannot be read at all; then nothing starts
