"""What becomes of a job whose attempt has ended (R1, R3, R4, R5, R6, Z6)."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpuqueue.core.decisions import Finish
from gpuqueue.core.model import AfterStop, Job, Restarts, StopIntent
from gpuqueue.core.policy import Policy, RestartPolicy
from gpuqueue.core.reasons import Reason, ReasonCode, sentence
from gpuqueue.wire.states import JobState, RestartMode
from gpuqueue.wire.units import format_mib

DAY_S = 86400
PASSED_OVER_AFTER = 2  # R4: failed attempts from one checkpoint
GROW_MARGIN_MIB, GROW_MARGIN_PERCENT = 512, 10  # R5: what --grow adds to the measured peak
# R5: causes that another try would only meet again.
OUT_OF_MEMORY = frozenset({"out_of_memory", "quota_cap"})
NOT_RETRIED = frozenset({"host_out_of_memory", "disk_full", "shm_full", "missing_module", "wrong_build"})
MACHINE_FAULTS = frozenset({"hardware", "driver"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    """All that is known of how an attempt ended. `card_fault` is set where its card failed under it and is
    drained; `card` names that card for people. `cause` and `advice` are the diagnosis of its log, if any; where a
    neighbour is the cause, `advice` names the offender. `found` is the cause in two words for people, also where it is
    too unsure to decide on. `hopeless`: what was missing at its start, or a fault of the program itself, is sure to be
    met again. `newest_step` is that of the newest complete checkpoint of this job now. `peak_mib` is what it is known
    to have needed on one card, `largest_mib` the most that such a job could ever claim."""

    exit_status: int | None = None
    signal: int | None = None
    lost: bool = False
    failed_start: str | None = None
    stop: StopIntent | None = None
    old_boot: bool = False
    card_fault: str | None = None
    card: str = ""
    newest_step: int | None = None
    resumed_from: str | None = None
    cause: str | None = None
    advice: str = ""
    found: str = ""
    hopeless: bool = False
    peak_mib: int | None = None
    largest_mib: int | None = None

    @property
    def succeeded(self) -> bool:
        return self.exit_status == 0 and not self.lost and self.failed_start is None


def after_end(job: Job, end: AttemptEnd, policy: Policy, now: int) -> Finish:
    """The job's next state with its reason and counters. A stop decides first (Z6), then success, then what was
    the machine's fault and is free of charge (Z6, R6), then the restart rules."""
    seen = _with_progress(job.restarts, end.newest_step)
    if end.stop is not None and not _ended_by_itself(end, end.stop):
        return _stopped(job, end.stop, seen)
    if end.succeeded:
        return _succeeded(job, seen, policy.restart, now)
    if end.card_fault is not None or end.old_boot:
        return _failed_under_it(job, end, seen)
    return _failed(job, end, seen, policy.restart, now)


def passed_over(job: Job) -> tuple[str, ...]:
    """R4: the checkpoints that the next attempt must not resume from, since nobody got past them."""
    failures = job.restarts.failures_from or {}
    return tuple(sorted(path for path, count in failures.items() if count >= PASSED_OVER_AFTER))


def backoff_s(job_id: int, failures: int, policy: RestartPolicy) -> int:
    """R1: the pause after so many failures in a row: 10 s × 2ⁿ and up to a quarter more, which the job id
    decides so that jobs that fell together do not rise together; never over the maximum."""
    doublings = min(max(0, failures - 1), 32)
    pause_s = min(policy.backoff_max_s, policy.backoff_base_s << doublings)
    scattered = job_id * 2654435761 % 2**32  # Knuth's multiplicative hash
    return min(policy.backoff_max_s, pause_s + scattered % (pause_s // 4 + 1))


def own_reason(end: AttemptEnd) -> Reason:
    """How the process itself ended, and what of, whatever is made of it."""
    found = f": {end.found}" if end.found else ""
    if end.failed_start is not None:
        return Reason(ReasonCode.FAILED_START, {"why": end.failed_start})
    if end.lost or (end.exit_status is None and end.signal is None):
        return Reason(ReasonCode.LOST, {"why": "nobody who watched it lived to note it"})
    if end.signal is not None:
        return Reason(ReasonCode.SIGNALLED, {"signal": _name(end.signal), "found": found})
    if end.exit_status == 0:
        return Reason(ReasonCode.SUCCEEDED)
    return Reason(ReasonCode.EXITED, {"status": end.exit_status or 0, "found": found})


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _ended_by_itself(end: AttemptEnd, stop: StopIntent) -> bool:
    """It finished before the first signal. One to be requeued is requeued all the same: a trainer that saves
    and exits with 0 on the signal looks alike, and running a finished one again loses nothing."""
    return end.succeeded and not stop.signalled and stop.after is not AfterStop.REQUEUE


def _stopped(job: Job, stop: StopIntent, restarts: Restarts) -> Finish:
    if stop.after is AfterStop.REQUEUE:
        ahead = stop.beneficiary is not None  # Q6: a victim of reclaim
        return _free_of_charge(job, stop.reason, restarts, ahead=ahead)
    state = JobState.CANCELLED if stop.after is AfterStop.CANCEL else JobState.STOPPED
    return Finish(job_id=job.id, state=state, reason=stop.reason, restarts=restarts)


def _succeeded(job: Job, restarts: Restarts, policy: RestartPolicy, now: int) -> Finish:
    reason = Reason(ReasonCode.SUCCEEDED)
    if job.ask.restart is not RestartMode.ALWAYS:
        return Finish(job_id=job.id, state=JobState.SUCCEEDED, reason=reason, restarts=restarts)
    fresh = replace(restarts, total=restarts.total + 1, failures_in_row=0)
    return _pause(job, reason, fresh, now + backoff_s(job.id, 0, policy))


def _failed_under_it(job: Job, end: AttemptEnd, restarts: Restarts) -> Finish:
    """Its card or the machine went away. `--restart never` means that it must not run twice, so it ends."""
    reason = Reason(ReasonCode.REBOOT)
    if end.card_fault is not None:
        reason = Reason(ReasonCode.CARD_LOST, {"card": end.card, "why": end.card_fault})
    if job.ask.restart is RestartMode.NEVER:
        return Finish(job_id=job.id, state=JobState.FAILED, reason=reason, restarts=restarts)
    return _free_of_charge(job, reason, restarts)


def _failed(job: Job, end: AttemptEnd, seen: Restarts, policy: RestartPolicy, now: int) -> Finish:
    reason = own_reason(end)
    counted = _count_failure(seen, end, progressed=seen.newest_step != job.restarts.newest_step)
    if job.ask.restart is RestartMode.NEVER:
        return _end(job, _because(job, end, reason), counted)
    recent = tuple(at for at in seen.recent_at if at > now - DAY_S)
    if len(recent) >= policy.per_day:
        fields: dict[str, str | int] = {"restarts": len(recent), "last": sentence(_advised(reason, end))}
        return _end(job, Reason(ReasonCode.TOO_MANY_RESTARTS, fields), counted, JobState.STOPPED)
    if end.cause == "neighbour" and seen.as_victim < policy.victim_limit:  # O2
        victim = replace(seen, total=seen.total + 1, as_victim=seen.as_victim + 1)
        return _free_of_charge(job, Reason(ReasonCode.VICTIM, {"offender": end.advice or "by a neighbour"}), victim)
    if end.cause in MACHINE_FAULTS:  # no failure of the job's, but a pause: nobody has drained anything yet
        return _pause(job, reason, _again(seen, recent, now), now + backoff_s(job.id, len(recent) + 1, policy))
    if _would_fail_again(job, end):
        return _end(job, _because(job, end, reason), counted)
    if counted.failures_in_row >= policy.crash_limit:
        fields = {"failures": counted.failures_in_row, "last": sentence(_advised(reason, end))}
        return _end(job, Reason(ReasonCode.CRASH_LOOP, fields), counted, JobState.STOPPED)
    counted = _again(counted, recent, now)
    if end.cause in OUT_OF_MEMORY and (claim_mib := _grown_mib(job, end)) is not None:
        return _grown(job, claim_mib, replace(counted, grown=True))
    if end.cause == "fragmentation":
        counted = replace(counted, used_expandable_segments=True)
    return _pause(job, reason, counted, now + backoff_s(job.id, counted.failures_in_row, policy))


def _again(restarts: Restarts, recent: tuple[int, ...], now: int) -> Restarts:
    return replace(restarts, total=restarts.total + 1, recent_at=(*recent, now))


def _would_fail_again(job: Job, end: AttemptEnd) -> bool:
    """R5: there is no point in a retry, or its one retry is spent."""
    if end.cause in OUT_OF_MEMORY:
        return not job.ask.grow or job.restarts.grown or _grown_mib(job, end) is None
    if end.cause == "fragmentation":
        return job.restarts.used_expandable_segments
    return end.hopeless or end.cause in NOT_RETRIED


def _because(job: Job, end: AttemptEnd, reason: Reason) -> Reason:
    """The reason of a job that ends, by its cause where that says more than its exit status."""
    if end.cause in OUT_OF_MEMORY or end.cause == "fragmentation":
        advice = end.advice or "ask for more VRAM, or make it need less"
        if (most := _end_of_growth(job, end)) is not None:
            advice += f" (--grow: {format_mib(most)} is the most that could start here)"
        return Reason(ReasonCode.OUT_OF_MEMORY, {"advice": _inside(advice)})
    if end.cause in NOT_RETRIED or (end.hopeless and end.failed_start is None):
        advice = end.advice or str(end.cause).replace("_", " ")
        return Reason(ReasonCode.NO_RETRY, {"last": sentence(reason), "advice": _inside(advice)})
    return _advised(reason, end)


def _inside(advice: str) -> str:
    """The advice as it goes on within a sentence. Names (PyTorch, SIGKILL) keep their letters."""
    return advice[0].lower() + advice[1:] if advice.split(" ")[0].istitle() else advice


def _advised(reason: Reason, end: AttemptEnd) -> Reason:
    """With what to do about it, where the reason says what was found."""
    if not (end.found and end.advice and "found" in reason.fields):
        return reason
    advice = end.advice[0].upper() + end.advice[1:]
    return replace(reason, fields={**reason.fields, "found": f"{reason.fields['found']}. {advice}"})


def _end_of_growth(job: Job, end: AttemptEnd) -> int | None:
    """The most that could start, where that is why `--grow` does not try once more."""
    would_grow = job.ask.grow and not job.restarts.grown and end.peak_mib is not None
    return end.largest_mib if would_grow and _grown_mib(job, end) is None else None


def _grown_mib(job: Job, end: AttemptEnd) -> int | None:
    """R5 `--grow`: the peak and a margin, as far as such a job could ever start. None where nothing was measured, or
    no more than what was too little is to be had."""
    if end.peak_mib is None:
        return None
    peak_mib = max(end.peak_mib, job.claim_mib)
    claim_mib = peak_mib + max(GROW_MARGIN_MIB, peak_mib * GROW_MARGIN_PERCENT // 100)
    if end.largest_mib is not None:
        claim_mib = min(claim_mib, end.largest_mib)
    return claim_mib if claim_mib > peak_mib else None


def _grown(job: Job, claim_mib: int, restarts: Restarts) -> Finish:
    """R5 `--grow`: its one requeue."""
    advice = f"tried once more with {format_mib(claim_mib)} (--grow)"
    reason = Reason(ReasonCode.OUT_OF_MEMORY, {"advice": advice})
    return Finish(job_id=job.id, state=JobState.QUEUED, reason=reason, restarts=restarts, claim_mib=claim_mib)


def _with_progress(restarts: Restarts, newest_step: int | None) -> Restarts:
    """R3: a newer complete checkpoint ends the row of failures."""
    if newest_step is None or (restarts.newest_step is not None and newest_step <= restarts.newest_step):
        return restarts
    return replace(restarts, newest_step=newest_step, failures_in_row=0)


def _count_failure(restarts: Restarts, end: AttemptEnd, *, progressed: bool) -> Restarts:
    """One more in the row, and one more from the checkpoint that it resumed from, unless it got past that."""
    failures_from: Mapping[str, int] = restarts.failures_from or {}
    if end.resumed_from is not None and not progressed:
        failures_from = {**failures_from, end.resumed_from: failures_from.get(end.resumed_from, 0) + 1}
    return replace(restarts, failures_in_row=restarts.failures_in_row + 1, failures_from=failures_from)


def _end(job: Job, reason: Reason, restarts: Restarts, state: JobState = JobState.FAILED) -> Finish:
    return Finish(job_id=job.id, state=state, reason=reason, restarts=restarts)


def _free_of_charge(job: Job, reason: Reason, restarts: Restarts, *, ahead: bool = False) -> Finish:
    """Z6: it waits again at its old place, and no failure is counted."""
    return Finish(
        job_id=job.id,
        state=JobState.QUEUED,
        reason=reason,
        restarts=restarts,
        ahead=ahead,
        expandable_segments=restarts.used_expandable_segments,
    )


def _pause(job: Job, reason: Reason, restarts: Restarts, not_before: int) -> Finish:
    """R1: the card is free meanwhile."""
    return Finish(
        job_id=job.id,
        state=JobState.BACKOFF,
        reason=reason,
        restarts=restarts,
        not_before=not_before,
        expandable_segments=restarts.used_expandable_segments,
    )
