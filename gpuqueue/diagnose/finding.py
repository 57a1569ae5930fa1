"""What goes into a diagnosis and what comes out of it."""

from dataclasses import asdict, dataclass
from enum import StrEnum

MIB_PER_GIB = 1024


class Cause(StrEnum):
    """Why an attempt ended. The words are part of the command-line and API contract."""

    out_of_memory = "out_of_memory"
    fragmentation = "fragmentation"
    leak = "leak"
    neighbour = "neighbour"
    quota_cap = "quota_cap"
    host_out_of_memory = "host_out_of_memory"
    shm_full = "shm_full"
    disk_full = "disk_full"
    hardware = "hardware"
    driver = "driver"
    assertion = "assertion"
    illegal_access = "illegal_access"
    nccl = "nccl"
    wrong_build = "wrong_build"
    missing_module = "missing_module"
    signal = "signal"
    timeout = "timeout"
    program_error = "program_error"
    none = "none"


class Confidence(StrEnum):
    """How sure the diagnosis is; a low one is a guess and must not be acted on alone."""

    high = "high"
    medium = "medium"
    low = "low"


class Retry(StrEnum):
    """Whether another attempt makes sense (R5, O2)."""

    no = "no"  # it would end the same way
    once = "once"  # one more attempt is worth its cost
    with_expandable_segments = "with_expandable_segments"  # one attempt, allocator told to grow in place
    free = "free"  # not the job's fault: restart without counting it against the job
    yes = "yes"  # whatever the job's restart policy says


class Phase(StrEnum):
    """What the job was doing when it ended."""

    load = "load"
    training = "training"
    evaluation = "evaluation"
    saving = "saving"


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known about an ended attempt. Only `log_tail` is needed; None means unknown, and so does () but for
    `kernel_lines`.

    `signal` is what the process died of; an `exit_status` of 128 + n or -n says the same.
    `stop_reason` is set when gpuqueue itself ended the job (a word or sentence of its own).
    `curve` holds (second since start, MiB on the card); `neighbours` (pid, owner, MiB) of every other
    process on the card; `kernel_lines` the kernel log of the attempt's time, with Xid and OOM-killer lines;
    `largest_claim_mib` is the most that such a job could claim on this node;
    `oom_kills` the job's processes that the kernel killed for want of host memory, where it counts them;
    `mem_limit_mib` the host memory that the job may take, where it is limited.
    """

    log_tail: str
    exit_status: int | None = None
    signal: int | None = None
    stop_reason: str | None = None
    curve: tuple[tuple[int, int], ...] = ()
    claim_mib: int | None = None
    largest_claim_mib: int | None = None
    cap_mib: int | None = None
    neighbours: tuple[tuple[int, str, int], ...] = ()
    own_pids: frozenset[int] = frozenset()
    kernel_lines: tuple[str, ...] | None = None
    oom_kills: int | None = None
    mem_limit_mib: int | None = None
    host_mem_total_mib: int | None = None

    @property
    def died_of_signal(self) -> int | None:
        """The signal number, whichever of the three conventions told it; None where there was none."""
        if self.signal is not None:
            return abs(self.signal) or None
        if self.exit_status is None:
            return None
        if self.exit_status < 0:
            return -self.exit_status
        if 128 < self.exit_status <= 128 + 64:
            return self.exit_status - 128
        return None

    @property
    def succeeded(self) -> bool:
        """True where the job is known to have ended well (R1: exit status 0 is success)."""
        return self.exit_status == 0 and self.died_of_signal is None

    @property
    def failed(self) -> bool:
        """True where the job is known to have ended badly; a log alone leaves both open."""
        return not self.succeeded and (self.exit_status is not None or self.died_of_signal is not None)


@dataclass(frozen=True, slots=True)
class Finding:
    """Why the attempt ended: the line that shows it, what to do with numbers, and whether to retry.

    `pids` are the processes that the message blames, the job's own left out. Where its message says so, `held_mib` is
    what the job held on one card, `needed_mib` that and what it asked for.
    """

    cause: Cause
    confidence: Confidence
    evidence: str
    advice: str
    retry: Retry
    phase: Phase | None = None
    pids: tuple[int, ...] = ()
    needed_mib: int | None = None
    held_mib: int | None = None

    def as_dict(self) -> dict[str, object]:
        """Plain values in a stable order, for JSON."""
        return asdict(self)


def gib(mib: int) -> str:
    """A size in MiB as people read it."""
    return f"{mib / MIB_PER_GIB:.1f} GiB" if mib >= MIB_PER_GIB else f"{mib} MiB"
