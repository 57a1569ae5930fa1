"""Who holds a card without using it: idle (I1, I3, I4) and stalled (I2).

Both are judged over the newest samples of the attempt, which the engine keeps without a gap (Z5): over the
longest stretch up to now, and not beyond the window, whose averages are under the thresholds and in which no
new checkpoint appeared. How much VRAM the job holds, or whether it has a process at all, makes no difference.
"""

from dataclasses import dataclass

from gpuqueue.core.decisions import Stop, Warn
from gpuqueue.core.model import AfterStop, Job
from gpuqueue.core.policy import IdlePolicy, Mode
from gpuqueue.core.reasons import Reason, ReasonCode, sentence
from gpuqueue.core.snapshot import Account, Activity
from gpuqueue.wire.states import JobClass
from gpuqueue.wire.units import format_seconds

WARN_PERCENT = (50, 80)  # I3


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """The newest `span_s` seconds of an attempt, with the sums of value × seconds over them."""

    span_s: int = 0
    gpu: int = 0
    cpu: int = 0
    io: int = 0

    def gpu_under(self, policy: IdlePolicy) -> bool:
        return self.gpu < policy.gpu_permille * self.span_s

    def host_under(self, policy: IdlePolicy) -> bool:
        return self.cpu < policy.cpu_millicores * self.span_s and self.io < policy.io_kib_s * self.span_s

    def numbers(self) -> dict[str, str | int]:
        """The averages as a reason's fields."""
        seconds = max(1, self.span_s)
        permille, hundredths, io = self.gpu // seconds, self.cpu // seconds // 10, self.io // seconds
        return {
            "idle_s": self.span_s,
            "gpu_percent": f"{permille // 10}.{permille % 10}",
            "cpu_cores": f"{hundredths // 100}.{hundredths % 100:02d}",
            "io": f"{io // 1024} MiB/s" if io >= 1024 else f"{io} KiB/s",
        }


def window_s(job: Job, policy: IdlePolicy) -> int:
    """I4: the job's own window."""
    if job.ask.interactive:
        return policy.interactive_window_s
    return policy.light_window_s if job.ask.job_class is JobClass.LIGHT else policy.train_window_s


def judge(job: Job, account: Account, activity: Activity, policy: IdlePolicy, now: int) -> Stop | Warn | None:
    """What idleness asks for at this instant. Jobs without a card, exempt accounts and jobs that `gq keep`
    protects are left alone; after that protection the window starts anew."""
    exempt = account.idle_exempt or job.account in policy.exempt_accounts
    if exempt or job.ask.cards == 0 or now < job.idle_exempt_until:
        return None
    since = max(job.idle_exempt_until, activity.checkpoint_at or 0)
    return _idle(job, activity, policy, since) or _stalled(job, activity, policy, since)


def longest(activity: Activity, policy: IdlePolicy, since: int, most_s: int, *, gpu_only: bool = False) -> Stretch:
    """The longest stretch of at most about `most_s` seconds up to the newest sample, begun at `since` or later,
    whose averages are under the thresholds (`gpu_only`: of the GPU alone). It ends before a sample whose GPU
    use nobody could read."""
    best = stretch = Stretch()
    for sample in reversed(activity.samples):
        if stretch.span_s >= most_s or sample.at - sample.span_s < since or sample.gpu_permille is None:
            break
        stretch = Stretch(
            span_s=stretch.span_s + sample.span_s,
            gpu=stretch.gpu + sample.gpu_permille * sample.span_s,
            cpu=stretch.cpu + sample.cpu_millicores * sample.span_s,
            io=stretch.io + sample.io_kib_s * sample.span_s,
        )
        if stretch.gpu_under(policy) and (gpu_only or stretch.host_under(policy)):
            best = stretch
    return best


def _idle(job: Job, activity: Activity, policy: IdlePolicy, since: int) -> Stop | Warn | None:
    window = window_s(job, policy)
    stretch = longest(activity, policy, since, window)
    level = sum(stretch.span_s * 100 >= window * percent for percent in WARN_PERCENT)
    reason = Reason(ReasonCode.IDLE, stretch.numbers() | {"window_s": window})
    if policy.mode is Mode.REPORT:
        if stretch.span_s >= window and activity.idle_warned < len(WARN_PERCENT):
            text = f"report only, would have been stopped: {sentence(reason)}"
            return Warn(job_id=job.id, kind="idle", level=len(WARN_PERCENT), text=text)
        return _withdrawn(job, activity, level)
    if level > activity.idle_warned:  # one at a time, so that both precede the stop (I3)
        left = max(0, window - stretch.span_s)
        text = (
            f"{sentence(reason)}: will be stopped in {format_seconds(left)} unless it works; "
            f"gq keep {job.id} 2h holds that off"
        )
        return Warn(job_id=job.id, kind="idle", level=activity.idle_warned + 1, text=text)
    if stretch.span_s >= window:
        return Stop(job_id=job.id, reason=reason, after=AfterStop.STOP)
    return _withdrawn(job, activity, level)


def _withdrawn(job: Job, activity: Activity, level: int) -> Warn | None:
    """Level 0: it is not idle any more, so that the next idle stretch is warned of in full."""
    if level == 0 and activity.idle_warned > 0:
        return Warn(job_id=job.id, kind="idle", level=0, text="no longer counted as idle: the window starts again")
    return None


def _stalled(job: Job, activity: Activity, policy: IdlePolicy, since: int) -> Stop | Warn | None:
    """I2: the GPU waits for CPU or I/O that are busy: said once, stopped only where the admin set a time."""
    most_s = max(policy.stalled_warn_s, policy.stalled_stop_s or 0)
    stretch = longest(activity, policy, since, most_s, gpu_only=True)
    if stretch.span_s < policy.stalled_warn_s or stretch.host_under(policy):
        return None
    limit_s = policy.stalled_stop_s
    if limit_s is not None and policy.mode is Mode.STOP and activity.stalled_warned and stretch.span_s >= limit_s:
        fields = stretch.numbers() | {"window_s": limit_s}
        del fields["gpu_percent"]
        return Stop(job_id=job.id, reason=Reason(ReasonCode.STALLED, fields), after=AfterStop.STOP)
    if activity.stalled_warned:
        return None
    numbers = stretch.numbers()
    text = (
        f"stalled: GPU at {numbers['gpu_percent']} % for {format_seconds(stretch.span_s)} while "
        f"{numbers['cpu_cores']} CPU cores and {numbers['io']} of I/O are busy; is the data loader the bottleneck?"
    )
    return Warn(job_id=job.id, kind="stalled", level=1, text=text)
