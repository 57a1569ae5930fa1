"""After a failed attempt: gather the evidence that diagnose reads, and keep its finding (rules R5, O2)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpuqueue.core.cap import allocator_cap_mib
from gpuqueue.core.model import Attempt, Job
from gpuqueue.core.readings import NodeReading, Probe, ProcessUse
from gpuqueue.core.snapshot import Snapshot
from gpuqueue.diagnose.diagnose import diagnose
from gpuqueue.diagnose.finding import Cause, Confidence, Evidence, Finding, Retry
from gpuqueue.diagnose.xid import parse_all, pci_address
from gpuqueue.engine.engine import Engine
from gpuqueue.engine.observe import observe
from gpuqueue.wire.errors import GpuqueueError
from gpuqueue.wire.jobs import Diagnosis
from gpuqueue.wire.units import format_mib

TAIL_BYTES = 64 * 1024
MAX_EVIDENCE = 1000  # characters of one line

Uses = Mapping[tuple[int, int], ProcessUse]


@dataclass(frozen=True, slots=True, kw_only=True)
class Autopsy:
    """`cause` is set where it is sure enough to decide on (R5), `diagnosis` where there is something to tell.
    `hopeless` is a fault of the program itself, sure to be met again; `headline` a few words for people, "" where they
    would be a mere guess, or say no more than the exit status does. `held_mib` is what the job's own words say that
    it held on one card, `needed_mib` that and what it wanted."""

    cause: str | None = None
    diagnosis: Diagnosis | None = None
    hopeless: bool = False
    headline: str = ""
    needed_mib: int | None = None
    held_mib: int | None = None

    @property
    def likely(self) -> bool:
        """Whether there is a finding that is more than a guess."""
        return self.diagnosis is not None and self.diagnosis.confidence != Confidence.low


def examine(
    engine: Engine,
    job: Job,
    attempt: Attempt,
    probe: Probe,
    reading: NodeReading,
    uses: Uses,
    largest_mib: int | None,
) -> Autopsy:
    """Why the attempt failed. Success and our own stops need no finding. `largest_mib` is the most that such a job
    could ever claim here."""
    if job.stop is not None or probe.exit_status == 0 or probe.old_boot or probe.failed_start or probe.lost:
        return Autopsy()
    key = (attempt.job_id, attempt.number)
    # A card read a moment ago may still show processes that are dead by now: they are this attempt's, no strangers.
    own = engine.activity.pids(key) | (uses[key].pids if key in uses else frozenset())
    own |= frozenset({probe.main_pid} if probe.main_pid is not None else ())
    uses = {**uses, key: ProcessUse(pids=own, cpu_ms=0, io_bytes=0)}
    request = engine.store.request(job.id)
    capped = request is not None and request.cap and attempt.cards
    evidence = Evidence(
        log_tail=_tail(engine, attempt),
        exit_status=probe.exit_status,
        signal=probe.signal,
        claim_mib=attempt.claim_mib if attempt.cards else None,
        largest_claim_mib=largest_mib if attempt.cards else None,
        cap_mib=allocator_cap_mib(attempt.claim_mib) if capped else None,
        curve=engine.curves.of(attempt),
        neighbours=_neighbours(engine, attempt, reading, uses),
        own_pids=own | engine.activity.seen_pids(key),
        kernel_lines=_kernel_lines(engine, attempt),
        oom_kills=probe.oom_kills,
        mem_limit_mib=request.mem_mib if request is not None and engine.backend.limits_memory else None,
    )
    # The offender may have gone between the death and this look: the look before it counts, too.
    looks = (observe(engine, reading, uses), engine.snapshot)
    return _told(_blame(attempt, diagnose(evidence), looks), probe)


def _tail(engine: Engine, attempt: Attempt) -> str:
    try:
        data, _, _ = engine.backend.read_log(attempt.job_id, attempt.number, -TAIL_BYTES, TAIL_BYTES)
    except GpuqueueError:  # its owner replaced it, or the disk fails: then nothing is known
        return ""
    return data.decode(errors="replace")


def _kernel_lines(engine: Engine, attempt: Attempt) -> tuple[str, ...] | None:
    """What the kernel logged while the attempt ran, without what it says of other cards than the attempt's; None where
    it may not be read."""
    lines = engine.backend.kernel_lines(attempt.started_unix)
    if lines is None:
        return None
    cards = {pci_address(card.pci_bus_id) for card in engine.snapshot.cards if card.uuid in attempt.cards}
    elsewhere = {event.line for event in parse_all(lines) if event.pci and event.pci not in cards}
    return tuple(line for line in lines if line.strip() not in elsewhere)


def _neighbours(engine: Engine, attempt: Attempt, reading: NodeReading, uses: Uses) -> tuple[tuple[int, str, int], ...]:
    """(pid, whose, MiB) of all other processes on its cards. Empty where the driver hides who holds what (M4): then
    the figures of the job's own message are all there is."""
    holder = {pid: key for key, use in uses.items() for pid in use.pids}
    found = []
    for process in [p for card in reading.cards if card.uuid in attempt.cards for p in card.processes or ()]:
        if process.used_mib is None:
            return ()
        key = holder.get(process.pid)
        if key == (attempt.job_id, attempt.number):
            continue
        known = engine.identify(process.pid) if key is None else None
        whose = f"job {key[0]}" if key is not None else known.user if known is not None else "unknown"
        found.append((process.pid, whose, process.used_mib))
    return tuple(found)


def _blame(attempt: Attempt, finding: Finding, looks: tuple[Snapshot, ...]) -> Finding:
    """O2: a neighbour is to blame only if it took what was promised to this job. Neighbours within their claims are no
    offenders. Where nobody is found, it is a failure like others: neither free of charge nor the end."""
    if finding.cause is not Cause.neighbour:
        return finding
    if any(card.hidden for look in looks for card in look.cards if card.uuid in attempt.cards):
        return finding
    if (attempt.peak_mib or 0) > attempt.claim_mib:
        held, declared = format_mib(attempt.peak_mib or 0), format_mib(attempt.claim_mib)
        advice = f"it declared {declared} and held {held} itself: raise --vram (see `gq estimate`)"
        return replace(finding, cause=Cause.out_of_memory, advice=advice, retry=Retry.no)
    offender = next((name for look in looks if (name := _offender(attempt, look))), None)
    if offender is None:
        return _unexplained(attempt, finding)
    return replace(finding, confidence=Confidence.high, advice=offender)


def _unexplained(attempt: Attempt, finding: Finding) -> Finding:
    """Everybody kept to what was theirs. Either the job's own words prove that it wanted no more than its claim, then
    whoever was in the way has gone; or it asked for more in one go than it was ever seen to hold."""
    declared = format_mib(attempt.claim_mib)
    if finding.needed_mib is not None and finding.needed_mib <= attempt.claim_mib:
        advice = f"{finding.advice} But nobody is seen who took what was promised to it."
        return replace(finding, confidence=Confidence.medium, advice=advice)
    held = "" if attempt.peak_mib is None else f" ({format_mib(attempt.peak_mib)} were measured)"
    advice = (
        f"Nobody had taken of the {declared} promised to it: it asked for more in one go{held}. "
        "Raise --vram (see `gq estimate`), or make it need less."
    )
    return replace(
        finding, cause=Cause.out_of_memory, confidence=Confidence.medium, advice=advice, retry=Retry.no, pids=()
    )


def _offender(attempt: Attempt, look: Snapshot) -> str | None:
    """Who held more than was theirs on the attempt's cards: a job over its claim, or strangers who crowd it."""
    leases = [lease for lease in look.leases if lease.card in attempt.cards]
    over = [lease for lease in leases if lease.job_id != attempt.job_id and (lease.measured_mib or 0) > lease.claim_mib]
    if over:
        worst = max(over, key=lambda lease: ((lease.measured_mib or 0) - lease.claim_mib, lease.job_id))
        declared, held = format_mib(worst.claim_mib), format_mib(worst.measured_mib or 0)
        return f"job {worst.job_id} of {worst.account} declared {declared} and held {held}"
    for card in look.cards:
        promised_mib = sum(lease.charge_mib for lease in leases if lease.card == card.uuid)
        if card.uuid in attempt.cards and promised_mib + card.foreign_mib > card.capacity_mib:
            names = ", ".join(f"pid {one.pid} of {one.user}" for one in card.strangers) or "a stranger"
            return f"{names} held {format_mib(card.foreign_mib)} outside the queue"
    return None


def _told(finding: Finding, probe: Probe) -> Autopsy:
    low, high = finding.confidence is Confidence.low, finding.confidence is Confidence.high
    hopeless = finding.cause is Cause.program_error and high and finding.retry is Retry.no
    plain = finding.cause is Cause.program_error or (finding.cause is Cause.signal and probe.signal is not None)
    words = "" if plain and not hopeless else str(finding.cause).replace("_", " ")
    if finding.cause is Cause.none or (low and finding.cause is Cause.program_error):
        return Autopsy()  # it would say no more than the exit status does
    return Autopsy(
        cause=str(finding.cause) if _decides(finding) else None,
        diagnosis=Diagnosis(
            cause=str(finding.cause),
            confidence=str(finding.confidence),
            evidence=finding.evidence[:MAX_EVIDENCE],
            advice=finding.advice,
        ),
        hopeless=hopeless,
        headline=words if high or not words else "" if low else f"probably {words}",
        needed_mib=finding.needed_mib,
        held_mib=finding.held_mib,
    )


def _decides(finding: Finding) -> bool:
    """A bare SIGKILL looks like the kernel's out-of-memory killer, and may be anybody's: only what is sure is acted
    on. Fragmentation is retried in any case, so a likely one is worth its one retry with the allocator's help; where
    this PyTorch does not know that, the retry is one like others."""
    if finding.cause is Cause.fragmentation:
        return finding.retry is Retry.with_expandable_segments and finding.confidence is not Confidence.low
    return finding.confidence is Confidence.high
