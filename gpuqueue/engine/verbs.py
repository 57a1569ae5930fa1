"""Use cases on one job: cancel, requeue, keep. Each records an intent that the tick carries out."""

from dataclasses import replace

from gpuqueue.core.model import AfterStop, Job
from gpuqueue.core.reasons import Reason, ReasonCode
from gpuqueue.engine import enact
from gpuqueue.engine.callers import Caller
from gpuqueue.engine.engine import Engine
from gpuqueue.wire.errors import ErrorCode, GpuqueueError
from gpuqueue.wire.states import JobState
from gpuqueue.wire.units import MAX_DURATION_S, format_seconds


def find(engine: Engine, job_id: int) -> Job:
    job = engine.store.job(job_id) if 0 < job_id < 2**63 else None
    if job is None:
        raise GpuqueueError(ErrorCode.NOT_FOUND, f"no job {job_id}", "see `gq status --all`")
    return job


def find_own(engine: Engine, caller: Caller, job_id: int, verb: str) -> Job:
    """The job, if the caller may do that to it (A2)."""
    job = find(engine, job_id)
    if not caller.may_touch(job):
        raise GpuqueueError(
            ErrorCode.NOT_PERMITTED,
            f"job {job_id} belongs to {job.user}: you ({caller.user}) may not {verb} it",
            "ask its owner or an admin",
        )
    return job


def cancel(engine: Engine, caller: Caller, job_id: int) -> Job:
    """Z6: ends the job, whatever its restart policy. Cancelling an ended job is a conflict that names its state."""
    job = find_own(engine, caller, job_id, "cancel")
    if job.state.ended:
        raise GpuqueueError(ErrorCode.CONFLICT, f"job {job_id} has ended already: {job.state}", "nothing to do")
    if job.stop is not None and job.stop.after is not AfterStop.REQUEUE:
        return job
    reason = Reason(ReasonCode.CANCELLED, {"actor": caller.user})
    enact.intend_stop(engine, job, reason, caller.user, AfterStop.CANCEL, job.ask.grace_s)
    return find(engine, job_id)


def cancel_all(engine: Engine, caller: Caller) -> list[Job]:
    """Every open job of the caller's own, never anybody else's, not even for an admin."""
    mine = [job for job in engine.store.open_jobs() if job.uid == caller.uid]
    return [cancel(engine, caller, job.id) for job in mine]


def requeue(engine: Engine, caller: Caller, job_id: int) -> Job:
    """Z6: stops a running job and queues it again, free of charge; an ended one gets another life under its id."""
    job = find_own(engine, caller, job_id, "requeue")
    reason = Reason(ReasonCode.REQUEUED, {"actor": caller.user})
    if job.state.ended:
        if any(a.job_id == job_id for a in engine.store.held_attempts()):
            raise GpuqueueError(
                ErrorCode.CONFLICT, f"job {job_id} still holds VRAM from its last attempt", "try again in a moment"
            )
        enact.revive(engine, job, reason)
        engine.event("requeued", caller.user, f"job {job_id} queued again", job_id)
    elif job.state is JobState.QUEUED:
        raise GpuqueueError(ErrorCode.CONFLICT, f"job {job_id} is queued already", "see `gq why`")
    elif job.stop is None:
        enact.intend_stop(engine, job, reason, caller.user, AfterStop.REQUEUE, job.ask.grace_s)
    else:
        raise GpuqueueError(ErrorCode.CONFLICT, f"job {job_id} is being stopped", "wait until it has ended")
    return find(engine, job_id)


def keep(engine: Engine, caller: Caller, job_id: int, extend_s: int) -> Job:
    """Z4: more time before the limit and before idleness, up to the admin's maximum in all."""
    job = find_own(engine, caller, job_id, "keep")
    limits = engine.settings.policy.limits
    if job.state.ended:
        raise GpuqueueError(ErrorCode.CONFLICT, f"job {job_id} has ended already: {job.state}", "nothing to keep")
    if not 1 <= extend_s <= MAX_DURATION_S:
        raise GpuqueueError(ErrorCode.INVALID, f"cannot keep a job for {extend_s} s", "write for example 2h")
    extra_s = job.extra_s + extend_s
    if extra_s > limits.keep_max_s and not caller.admin:
        left = max(0, limits.keep_max_s - job.extra_s)
        raise GpuqueueError(
            ErrorCode.REFUSED,
            f"job {job_id} may be kept for {format_seconds(left)} more, not {format_seconds(extend_s)}",
            "an admin may keep it longer",
        )
    kept = replace(job, extra_s=extra_s, idle_exempt_until=max(job.idle_exempt_until, engine.clock.second) + extend_s)
    with engine.store.transaction():
        engine.store.save_job(kept, expect=job.state)
        engine.event("kept", caller.user, f"job {job_id} kept {format_seconds(extend_s)} longer", job_id)
    return find(engine, job_id)
