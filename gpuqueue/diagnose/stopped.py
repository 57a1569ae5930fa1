"""Attempts that gpuqueue ended itself: the cause follows from its own reason, whatever the log says then."""

import re

from gpuqueue.diagnose.finding import Cause, Confidence, Finding, Retry

_SAID_BY_US = "gq: "  # before every line that gpuqueue itself writes into a job's log
_STOPPING = _SAID_BY_US + "stopping: "
# The first row whose words are in the reason decides (Z4, O1, H1, Z6).
_REASONS: tuple[tuple[re.Pattern[str], Cause, Retry, str], ...] = (
    (
        re.compile(r"time.?limit|^limit$|walltime|timeout", re.IGNORECASE),
        Cause.timeout,
        Retry.no,
        "The time limit counts all attempts: a longer --time, or `gq keep`.",
    ),
    (
        re.compile(r"overuse|declared|\bcap\b", re.IGNORECASE),
        Cause.quota_cap,
        Retry.no,
        "It used more VRAM than it claimed: claim the measured peak, or shrink the job.",
    ),
    (
        re.compile(r"card (?:\S+ )?(?:failed|failure|lost|gone)|hardware|\bxid\b|gpu lost", re.IGNORECASE),
        Cause.hardware,
        Retry.free,
        "The card failed; the job is requeued free of charge.",
    ),
    (
        re.compile(r"reclaim|drain|reboot|requeue|preempt", re.IGNORECASE),
        Cause.signal,
        Retry.free,
        "gpuqueue stopped it for the sake of others; it is requeued free of charge.",
    ),
)


def stopped_by_us(reason: str) -> Finding:
    """The finding for a stop of gpuqueue's own."""
    for pattern, cause, retry, advice in _REASONS:
        if pattern.search(reason):
            return Finding(cause, Confidence.high, reason, advice, retry)
    return Finding(Cause.signal, Confidence.high, reason, "gpuqueue stopped it for this reason.", Retry.no)


def own_lines(lines: tuple[str, ...]) -> tuple[tuple[str, ...], str | None]:
    """The lines that are the job's own, and why gpuqueue stopped it where one of its own lines says that."""
    stops = [line.removeprefix(_STOPPING) for line in lines if line.startswith(_STOPPING)]
    return tuple(line for line in lines if not line.startswith(_SAID_BY_US)), stops[-1] if stops else None
