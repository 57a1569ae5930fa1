"""The nouns of the scheduler: frozen, whole numbers only.

Every time called `_at` here without a unit of its own is in *engine seconds*: the seconds the daemon has
observed since its first start. That clock neither jumps nor runs while the daemon is down or the machine
sleeps, which is what makes rule Z5 (no time-based stop after an unobserved gap) true by construction.
Unix times, for people, are called `_unix`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from gpuqueue.core.curve import Curve
from gpuqueue.core.reasons import Reason
from gpuqueue.wire.jobs import Diagnosis
from gpuqueue.wire.states import JobClass, JobState, RestartMode


class AfterStop(StrEnum):
    """What becomes of a job once a stop has landed (rule Z6)."""

    CANCEL = "cancel"  # ends as cancelled
    STOP = "stop"  # ends as stopped
    REQUEUE = "requeue"  # back to the queue, free of charge


@dataclass(frozen=True, slots=True, kw_only=True)
class StopIntent:
    """Committed before the first signal is sent. `beneficiary` and `kept_mib` are the seam for reclaim (Q6)."""

    reason: Reason
    actor: str
    after: AfterStop
    grace_s: int
    asked_at: int
    signalled: bool = False
    beneficiary: int | None = None
    kept_mib: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What the submitter declared; never changes."""

    job_class: JobClass
    claim_mib: int  # per card; 0 = no card at all (P2)
    cards: int  # 0 iff claim_mib is 0
    gpu_type: str | None = None
    gpu_indexes: tuple[int, ...] = ()
    exclusive: bool = False
    interactive: bool = False
    borrow: bool = True
    grow: bool = False
    restart: RestartMode = RestartMode.ON_FAILURE
    limit_s: int = 86400
    grace_s: int = 120
    stop_signal: str = "SIGTERM"
    checkpoint_dir: str | None = None  # absolute; one job at a time may save there (R2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """What the restart rules count (R1, R3, R4, O2); survives the daemon."""

    total: int = 0
    failures_in_row: int = 0  # since the newest complete checkpoint appeared
    recent_at: tuple[int, ...] = ()  # of restarts after failures, within the last 24 h
    as_victim: int = 0
    newest_step: int | None = None
    failures_from: Mapping[str, int] | None = None  # checkpoint path -> attempts that failed from it
    used_expandable_segments: bool = False
    grown: bool = False  # R5 --grow has had its one requeue


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as the scheduler sees it."""

    id: int
    user: str
    uid: int
    account: str
    ask: Ask
    state: JobState
    state_since: int
    queued_at: int
    submitted_unix: int
    claim_mib: int  # what the next attempt claims per card: the ask, or more after growth (O1, R5)
    name: str = ""
    command: str = ""  # one line, for people
    priority: int = 0
    attempt: int = 0  # the newest attempt's number; 0 before the first
    ran_s: int = 0  # over all attempts that have ended; limits.ran_s adds the live one (Z4)
    extra_s: int = 0  # granted by `gq keep`
    idle_exempt_until: int = 0  # granted by `gq keep`
    not_before: int | None = None  # end of back-off
    held: bool = False
    requeue_rank: int = 0  # -1: ahead of its account's other jobs
    stop: StopIntent | None = None
    restarts: Restarts = Restarts()
    reason: Reason | None = None  # of the last end, stop or wait worth keeping
    exit_status: int | None = None
    exit_signal: int | None = None
    resumed_from: str | None = None
    peak_mib: int | None = None
    started_unix: int | None = None
    ended_unix: int | None = None

    @property
    def limit_s(self) -> int:
        return self.ask.limit_s + self.extra_s


class AttemptPhase(StrEnum):
    STARTING = "starting"  # lease committed, shim not yet seen alive
    RUNNING = "running"
    RELEASING = "releasing"  # ended, its VRAM not yet measured free (Z3)
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try at running a job. `cards` are the UUIDs it is pinned to, in the order that it sees them."""

    job_id: int
    number: int
    phase: AttemptPhase
    cards: tuple[str, ...]
    claim_mib: int
    charge_mib: int  # O1: the claim, until more is measured
    marker: str
    boot_id: str
    started_at: int
    started_unix: int
    nominal_mib: int = 0  # its account's quota for its class when it started (Q8)
    held_back_mib: int = 0  # of its card when it started (Q8)
    ended_unix: int | None = None
    exit_status: int | None = None
    exit_signal: int | None = None
    outcome: str = ""  # one sentence
    diagnosis: Diagnosis | None = None
    resumed_from: str | None = None
    peak_mib: int | None = None
    peak_at_s: int | None = None  # seconds after its start
    curve: Curve = ()  # as last written down; the live one is the engine's
    over_samples: int = 0  # consecutive samples over claim + tolerance (O1)
    over_at: int | None = None  # when the newest of them was taken
    flagged: str | None = None  # survives SIGKILL (Z3)
