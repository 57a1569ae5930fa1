"""After a failed attempt: gather the evidence that diagnose reads, and keep its finding (rules R5, O2)."""

from dataclasses import dataclass, replace

from gpuqueue.core.model import Attempt, Job
from gpuqueue.core.readings import Probe
from gpuqueue.core.snapshot import Lease
from gpuqueue.diagnose.diagnose import diagnose
from gpuqueue.diagnose.finding import Cause, Confidence, Evidence, Finding
from gpuqueue.engine.engine import Engine
from gpuqueue.wire.errors import GpuqueueError
from gpuqueue.wire.units import format_mib

TAIL_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Autopsy:
    """`cause` is set where it is sure enough to decide on (R5), `headline` where there is something to tell."""

    cause: str | None = None
    headline: str = ""
    advice: str = ""


def examine(engine: Engine, job: Job, attempt: Attempt, probe: Probe) -> Autopsy:
    """Why the attempt failed. Success and our own stops need no finding."""
    if job.stop is not None or probe.exit_status == 0 or probe.old_boot or probe.failed_start or probe.lost:
        return Autopsy()
    evidence = Evidence(
        log_tail=_tail(engine, attempt),
        exit_status=probe.exit_status,
        signal=probe.signal,
        claim_mib=attempt.claim_mib,
        neighbours=tuple((0, lease.account, lease.measured_mib or 0) for lease in _others(engine, attempt)),
    )
    finding = _blame(engine, attempt, diagnose(evidence))
    if finding.confidence is Confidence.low or finding.cause is Cause.none:
        return Autopsy()
    # A bare SIGKILL looks like the kernel's out-of-memory killer, and may be anybody's: only what is sure is acted on.
    sure = finding.confidence is Confidence.high
    return Autopsy(cause=str(finding.cause) if sure else None, headline=_headline(finding), advice=finding.advice)


def _tail(engine: Engine, attempt: Attempt) -> str:
    try:
        data, _, _ = engine.backend.read_log(attempt.job_id, attempt.number, -TAIL_BYTES, TAIL_BYTES)
    except GpuqueueError:  # its owner replaced it, or the disk fails: then nothing is known
        return ""
    return data.decode(errors="replace")


def _others(engine: Engine, attempt: Attempt) -> list[Lease]:
    return [lease for lease in engine.snapshot.leases if lease.card in attempt.cards and lease.job_id != attempt.job_id]


def _blame(engine: Engine, attempt: Attempt, finding: Finding) -> Finding:
    """O2: a neighbour is to blame only if it took what was promised to this job. PyTorch's message names everybody
    who holds VRAM; neighbours within their claims are no offenders, and the job itself ran out of its own."""
    if finding.cause is not Cause.neighbour:
        return finding
    cards = [card for card in engine.snapshot.cards if card.uuid in attempt.cards]
    if any(card.hidden for card in cards):
        return finding
    over = [lease for lease in _others(engine, attempt) if (lease.measured_mib or 0) > lease.claim_mib]
    crowded = [
        card
        for card in cards
        if sum(lease.charge_mib for lease in engine.snapshot.leases if lease.card == card.uuid) + card.foreign_mib
        > card.capacity_mib
    ]
    if over:
        worst = max(over, key=lambda lease: (lease.measured_mib or 0) - lease.claim_mib)
        offender = (
            f"job {worst.job_id} of {worst.account} declared {format_mib(worst.claim_mib)} "
            f"and held {format_mib(worst.measured_mib or 0)}"
        )
        return replace(finding, evidence=f"{offender}; {finding.evidence}", advice=offender)
    if crowded:
        names = ", ".join(f"pid {s.pid} of {s.user}" for card in crowded for s in card.strangers) or "a stranger"
        return replace(finding, advice=f"{names} held {format_mib(crowded[0].foreign_mib)} outside the queue")
    return replace(
        finding,
        cause=Cause.out_of_memory,
        advice=f"it declared {format_mib(attempt.claim_mib)} and needed more: raise --vram (see `gq estimate`)",
    )


def _headline(finding: Finding) -> str:
    words = str(finding.cause).replace("_", " ")
    return words if finding.confidence is Confidence.high else f"probably {words}"
