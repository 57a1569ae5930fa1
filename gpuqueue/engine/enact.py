"""Enact: do what core decided. Intent is committed before the deed, so that a crash between the two is found
by the next tick and finished, not repeated."""

import logging
import secrets
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from gpuqueue.core.decisions import Charge, Finish, Start, Stop, Supervision, Warn
from gpuqueue.core.limits import ran_s
from gpuqueue.core.model import AfterStop, Attempt, AttemptPhase, Job, StopIntent
from gpuqueue.core.phases import legal
from gpuqueue.core.readings import Probe
from gpuqueue.core.reasons import Reason, sentence
from gpuqueue.core.snapshot import Snapshot
from gpuqueue.engine.engine import Engine
from gpuqueue.engine.launch import AccountGone, build_spec
from gpuqueue.wire.errors import GpuqueueError
from gpuqueue.wire.rundir import REPORT, StopOrder
from gpuqueue.wire.states import JobState
from gpuqueue.wire.units import format_mib

log = logging.getLogger(__name__)


def move(engine: Engine, job: Job, state: JobState, **changes: object) -> bool:
    """The one place that changes a job's state. False: somebody was faster, and the next tick sees to it."""
    assert state is job.state or legal(job.state, state), f"job {job.id}: {job.state} -> {state} is no legal move"
    moved = replace(job, state=state, state_since=engine.clock.second, **changes)  # type: ignore[arg-type]
    return engine.store.save_job(moved, expect=job.state)


# -- starts ------------------------------------------------------------------------------------------------------


def starts(engine: Engine, snapshot: Snapshot, decided: Iterable[Start]) -> None:
    jobs = {job.id: job for job in snapshot.jobs}
    for start in decided:
        with engine.only_this_job(start.job_id):
            _start(engine, jobs[start.job_id], start)


def _start(engine: Engine, job: Job, start: Start) -> None:
    attempt = Attempt(
        job_id=job.id,
        number=job.attempt + 1,
        phase=AttemptPhase.STARTING,
        cards=start.cards,
        claim_mib=start.claim_mib,
        charge_mib=start.claim_mib,
        marker=secrets.token_hex(16),
        boot_id=engine.boot_id,
        started_at=engine.clock.second,
        started_unix=int(time.time()),
        nominal_mib=start.nominal_mib,
        held_back_mib=start.held_back_mib,
    )
    changes = {
        "attempt": attempt.number,
        # R2: written with the lease, since an attempt may be over before anybody has seen it alive.
        "started_unix": job.started_unix or attempt.started_unix,
        "not_before": None,
        "requeue_rank": 0,
    }
    with engine.store.transaction():
        if not move(engine, job, JobState.STARTING, **changes):
            return
        engine.store.save_attempt(attempt)
    started = engine.store.job(job.id)
    assert started is not None
    launch(engine, started, attempt)


def launch(engine: Engine, job: Job, attempt: Attempt) -> None:
    """Starts the shim of a committed attempt; harmless where it was started before."""
    request = engine.store.request(job.id)
    assert request is not None, f"job {job.id} has no request"
    by_uuid = {card.uuid: card for card in engine.snapshot.cards}
    missing = [uuid for uuid in attempt.cards if uuid not in by_uuid]
    if missing:
        log.warning("job %d waits to be launched: card %s is not readable now", job.id, missing[0])
        return
    try:
        spec = build_spec(
            job,
            attempt,
            request,
            [by_uuid[uuid] for uuid in attempt.cards],
            pin=engine.settings.policy.place.pin,
            log_cap_bytes=engine.settings.log_cap_mib * 1024 * 1024,
            card_environment=engine.cards.job_environment(),
            card_totals_mib=[card.total_mib for card in engine.reading.cards if card.uuid in attempt.cards],
            report=Path(engine.backend.log_path(job.id, attempt.number)).with_name(REPORT),
        )
        engine.backend.start(spec)
    except (AccountGone, GpuqueueError) as error:
        log.error("job %d could not be launched: %s", job.id, error)
        engine.failed_launches[(job.id, attempt.number)] = str(error)
        engine.wake()
        return
    where = ", ".join(f"card {by_uuid[uuid].index}" for uuid in attempt.cards) or "no card"
    engine.event(
        "started",
        "gpuqueued",
        f"job {job.id} attempt {attempt.number} starts for {job.account}: {format_mib(attempt.claim_mib)} on {where}",
        job.id,
    )


# -- stops -------------------------------------------------------------------------------------------------------


def supervise(engine: Engine, decided: Iterable[Supervision]) -> None:
    """Warnings are said, charges follow what is measured, stops become committed intents."""
    for decision in decided:
        with engine.only_this_job(decision.job_id):
            # Read anew: an earlier decision of this tick may have been about the same job.
            job = engine.store.job(decision.job_id)
            if job is None or job.state.ended:
                continue
            attempt = next(a for a in engine.store.attempts(job.id) if a.number == job.attempt)
            if isinstance(decision, Warn):
                _warn(engine, job, attempt, decision)
            elif isinstance(decision, Charge):
                _charge(engine, job, attempt, decision)
            else:
                _intend(engine, job, decision)


def _warn(engine: Engine, job: Job, attempt: Attempt, warning: Warn) -> None:
    engine.activity.warned((job.id, attempt.number), warning.kind, warning.level, warning.text)
    engine.backend.say(job.id, attempt.number, warning.text)
    engine.event("warned", "gpuqueued", f"job {job.id}: {warning.text}", job.id)


def _charge(engine: Engine, job: Job, attempt: Attempt, charge: Charge) -> None:
    with engine.store.transaction():
        over_at = engine.clock.second if charge.over_samples else None
        engine.store.save_attempt(
            replace(attempt, charge_mib=charge.charge_mib, over_samples=charge.over_samples, over_at=over_at)
        )
        if charge.claim_mib != job.claim_mib:
            engine.store.save_job(replace(job, claim_mib=charge.claim_mib), expect=job.state)
    if charge.text:
        engine.backend.say(job.id, attempt.number, charge.text)
        engine.event("overuse", "gpuqueued", f"job {job.id}: {charge.text}", job.id)


def _intend(engine: Engine, job: Job, stop: Stop) -> None:
    if job.stop is not None:
        return
    grace_s = job.ask.grace_s if stop.grace_s is None else min(stop.grace_s, job.ask.grace_s)
    intend_stop(engine, job, stop.reason, "gpuqueued", stop.after, grace_s)


def intend_stop(engine: Engine, job: Job, reason: Reason, actor: str, after: AfterStop, grace_s: int) -> None:
    """Commits the intent; the signal follows in the same tick or the next."""
    intent = StopIntent(reason=reason, actor=actor, after=after, grace_s=grace_s, asked_at=engine.clock.second)
    with engine.store.transaction():
        if engine.store.save_job(replace(job, stop=intent), expect=job.state):
            engine.event("stopping", actor, f"job {job.id} is to stop: {sentence(reason)}", job.id)


def carry_out_stops(engine: Engine) -> None:
    """Every open job with a stop intent: one that waits ends here, one that runs gets the order. The order is
    sent again until `signalled` is committed, which the shim takes as the same order."""
    for job in engine.store.open_jobs():
        if job.stop is None:
            continue
        with engine.only_this_job(job.id):
            if not job.state.active:
                _end_waiting(engine, job, job.stop)
            elif not job.stop.signalled:
                _signal(engine, job, job.stop)


def _end_waiting(engine: Engine, job: Job, stop: StopIntent) -> None:
    if stop.after is AfterStop.REQUEUE:
        move(engine, job, JobState.QUEUED, stop=None, not_before=None, reason=stop.reason)
        return
    state = JobState.CANCELLED if stop.after is AfterStop.CANCEL else JobState.STOPPED
    with engine.store.transaction():
        if move(engine, job, state, reason=stop.reason, ended_unix=int(time.time())):
            engine.event("ended", stop.actor, f"job {job.id} {state}: {sentence(stop.reason)}", job.id)


def _signal(engine: Engine, job: Job, stop: StopIntent) -> None:
    order = StopOrder(
        signal=job.ask.stop_signal,
        grace_s=stop.grace_s,
        sentence=f"stopping: {sentence(stop.reason)}",
        asked_at=time.time(),
    )
    engine.backend.stop(job.id, job.attempt, order)
    move(engine, job, JobState.STOPPING, stop=replace(stop, signalled=True), reason=stop.reason)


# -- ends --------------------------------------------------------------------------------------------------------


def finish(engine: Engine, job: Job, attempt: Attempt, decided: Finish, *, ended_unix: int, probe: Probe) -> None:
    """Moves the job to where core sends it, with the counters that core counted."""
    restarts = replace(
        decided.restarts,
        used_expandable_segments=decided.restarts.used_expandable_segments or decided.expandable_segments,
    )
    move(
        engine,
        job,
        decided.state,
        restarts=restarts,
        ran_s=ran_s(job, attempt, engine.clock.second),
        reason=decided.reason,
        stop=None,
        not_before=decided.not_before,
        claim_mib=decided.claim_mib if decided.claim_mib is not None else job.claim_mib,
        requeue_rank=-1 if decided.ahead else 0,
        exit_status=probe.exit_status,
        exit_signal=probe.signal,
        resumed_from=probe.resumed_from,
        ended_unix=ended_unix if decided.state.ended else None,
    )


def revive(engine: Engine, job: Job, reason: Reason) -> None:
    """An ended job back into the queue, with its counters at zero: its owner has looked at it. A checkpoint that it did
    not get past gets another chance, too (R4)."""
    move(
        engine,
        job,
        JobState.QUEUED,
        reason=reason,
        stop=None,
        not_before=None,
        restarts=replace(job.restarts, failures_in_row=0, recent_at=(), as_victim=0, failures_from=None, grown=False),
        exit_status=None,
        exit_signal=None,
        ended_unix=None,
        queued_at=engine.clock.second,
    )
