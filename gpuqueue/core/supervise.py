"""What happens to the jobs that run: charges that follow, warnings, stops.

A job that is being stopped gets nothing more. One job gets at most one stop, by the first rule that asks for
it: its card is gone (H1), overuse (O1), its time limit (Z4), idleness (I1), a stall (I2); then no warning beside it.
"""

from gpuqueue.core import idle, limits, lost, overuse
from gpuqueue.core.decisions import Stop, Supervision, Warn
from gpuqueue.core.model import Job
from gpuqueue.core.policy import Policy
from gpuqueue.core.snapshot import Activity, Snapshot
from gpuqueue.wire.states import JobState


def supervise(snapshot: Snapshot, policy: Policy) -> tuple[Supervision, ...]:
    """By job id, a changed charge before the stop or the warnings of the same job."""
    charges, offenders = overuse.judge(snapshot, policy.overuse)
    decisions: list[Supervision] = [*charges, *offenders]
    stopped = {stop.job_id for stop in offenders}
    for job in snapshot.jobs:
        if job.state is JobState.RUNNING and job.stop is None and job.id not in stopped:
            decisions += _watch(job, snapshot, policy)
    return tuple(sorted(decisions, key=lambda decision: decision.job_id))


def _watch(job: Job, snapshot: Snapshot, policy: Policy) -> list[Stop | Warn]:
    activity = snapshot.activity.get(job.id, Activity())
    attempt = snapshot.attempts.get(job.id)
    account = snapshot.accounts[job.account]
    asked: list[Stop | Warn | None] = []
    if attempt is not None:
        asked.append(lost.judge(job, attempt, snapshot.cards))
        asked.append(limits.judge(job, attempt, activity, policy.limits, snapshot.now))
    asked.append(idle.judge(job, account, activity, policy.idle, snapshot.now))
    found = [decision for decision in asked if decision is not None]
    stop = next((decision for decision in found if isinstance(decision, Stop)), None)
    return found if stop is None else [stop]
