"""The words that several listings share: sizes, times, and what a job is doing."""

import time
from typing import TYPE_CHECKING

from gpuqueue.wire.states import FINAL_STATES, WAITING_STATES, JobState
from gpuqueue.wire.units import format_mib, format_seconds

if TYPE_CHECKING:
    from gpuqueue.wire.jobs import JobView

STATE_COLOURS: dict[str, str] = {
    JobState.QUEUED: "yellow",
    JobState.STARTING: "cyan",
    JobState.RUNNING: "green",
    JobState.STOPPING: "yellow",
    JobState.BACKOFF: "yellow",
    JobState.SUCCEEDED: "green",
    JobState.FAILED: "red",
    JobState.CANCELLED: "dim",
    JobState.STOPPED: "red",
}


def gib(mib: int) -> str:
    """`22.0`: the number alone, where the unit stands beside it."""
    return f"{mib / 1024:.1f}"


def claim_words(job: "JobView") -> str:
    """`22.0 GiB`, `2 × 22.0 GiB`, or `no card`."""
    if job.vram_mib == 0:
        return "no card"
    each = format_mib(job.vram_mib)
    return each if job.gpus == 1 else f"{job.gpus} × {each}"


def cards_words(cards: list[int]) -> str:
    return ",".join(str(card) for card in cards)


def owner_words(account: str, user: str) -> str:
    """The account, and the login where that is another name."""
    return user if account == user else f"{account} ({user})"


def at_words(unix_s: int) -> str:
    """A moment as people say it: the time today, else the date too."""
    then, now = time.localtime(unix_s), time.localtime()
    if (then.tm_year, then.tm_yday) == (now.tm_year, now.tm_yday):
        return time.strftime("%H:%M:%S", then)
    return time.strftime("%Y-%m-%d %H:%M", then)


def ago_words(unix_s: int) -> str:
    """`14:02:11 (3m20s ago)`."""
    return f"{at_words(unix_s)} ({format_seconds(max(int(time.time()) - unix_s, 0))} ago)"


def standing(job: "JobView") -> str:
    """One sentence: the answer of `gq why`."""
    return f"job {job.id} {doing(job)}"


def doing(job: "JobView") -> str:
    """What the job is doing, since when, and why; starts with its state."""
    since = format_seconds(job.state_s)
    if job.state in FINAL_STATES:
        words = f"{job.state} {since} ago"
    elif job.state in WAITING_STATES:
        words = f"{job.state} for {since}"
    else:
        words = f"{job.state} on {_place(job)} for {since}"
    if job.reason:
        words += f": {job.reason}"
    if job.expected_start_at is not None and job.state in WAITING_STATES:
        left_s = max(job.expected_start_at - int(time.time()), 0)
        words += f"; expected to start within {format_seconds(left_s)}"
    return words


def _place(job: "JobView") -> str:
    if not job.cards:
        return "no card"
    return f"card {cards_words(job.cards)}" if len(job.cards) == 1 else f"cards {cards_words(job.cards)}"
