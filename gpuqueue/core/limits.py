"""The time limit counts running time over all attempts; it warns at 90 % and then stops (Z4)."""

from gpuqueue.core.decisions import Stop, Warn
from gpuqueue.core.model import AfterStop, Attempt, Job
from gpuqueue.core.policy import LimitPolicy
from gpuqueue.core.reasons import Reason, ReasonCode
from gpuqueue.core.snapshot import Activity
from gpuqueue.wire.units import format_seconds


def ran_s(job: Job, attempt: Attempt | None, now: int) -> int:
    """Observed running seconds over all attempts: those that have ended (`Job.ran_s`) and the live one."""
    live_s = max(0, now - attempt.started_at) if attempt is not None else 0
    return job.ran_s + live_s


def judge(job: Job, attempt: Attempt, activity: Activity, policy: LimitPolicy, now: int) -> Stop | Warn | None:
    """Stop at the limit, one warning before it; the warning is withdrawn (level 0) where `gq keep` has moved
    the limit away again."""
    ran = ran_s(job, attempt, now)
    if ran >= job.limit_s:
        reason = Reason(ReasonCode.LIMIT, {"ran_s": ran, "limit_s": job.limit_s})
        return Stop(job_id=job.id, reason=reason, after=AfterStop.STOP)
    due = ran * 100 >= job.limit_s * policy.warn_percent
    if due and not activity.limit_warned:
        left = format_seconds(job.limit_s - ran)
        text = (
            f"ran {format_seconds(ran)} of its time limit of {format_seconds(job.limit_s)}: will be stopped in {left}; "
            f"gq keep {job.id} 2h extends it"
        )
        return Warn(job_id=job.id, kind="limit", level=1, text=text)
    if activity.limit_warned and not due:
        text = f"the time limit is {format_seconds(job.limit_s)} now, of which {format_seconds(ran)} are used"
        return Warn(job_id=job.id, kind="limit", level=0, text=text)
    return None
