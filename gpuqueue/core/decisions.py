"""What core asks the engine to do. A decision is data; enacting it is the engine's business."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuqueue.core.model import AfterStop, Restarts
from gpuqueue.core.reasons import Reason
from gpuqueue.wire.states import JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    job_id: int
    cards: tuple[str, ...]  # UUIDs in PCI order; empty for a job without a card
    claim_mib: int
    nominal_mib: int  # kept with the attempt for Q8
    held_back_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    job_id: int
    reason: Reason
    after: AfterStop
    grace_s: int | None = None  # None: the job's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Warn:
    """Said in the job's log, in status and as an event. `kind` is idle, stalled or limit. Level 0 withdraws the
    warnings of that kind, so that they are given again when there is reason to."""

    job_id: int
    kind: str
    level: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """O1: from now on the attempt counts for this much on its card; `claim_mib` is for the next attempt."""

    job_id: int
    charge_mib: int
    claim_mib: int
    over_samples: int
    text: str  # told to the user; "" while only counting samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """What becomes of a job whose attempt has ended (R1, R3, Z6). `not_before` is set with BACKOFF;
    with QUEUED the job waits again free of charge, ahead of its account's others if `ahead`."""

    job_id: int
    state: JobState
    reason: Reason
    restarts: Restarts
    not_before: int | None = None
    claim_mib: int | None = None  # R5 --grow
    expandable_segments: bool = False
    ahead: bool = False


Supervision = Stop | Warn | Charge


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`starts` in the order decided. `verdicts`: one reason for every waiting job that does not start (S5);
    `expected_at`: engine seconds, where it can be known."""

    starts: tuple[Start, ...] = ()
    verdicts: Mapping[int, Reason] = field(default_factory=dict)
    expected_at: Mapping[int, int] = field(default_factory=dict)
