"""Attempts that gpuqueue ended itself: the cause follows from its own reason, whatever the log says then."""

import re

from gpuqueue.diagnose.finding import Cause, Confidence, Finding, Retry

# The first row whose words are in the reason decides (Z4, O1, H1, Z6).
_REASONS: tuple[tuple[re.Pattern[str], Cause, Retry, str], ...] = (
    (
        re.compile(r"time.?limit|\blimit\b|walltime|timeout", re.IGNORECASE),
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
        re.compile(r"card (?:failed|failure|lost|gone)|hardware|\bxid\b|gpu lost", re.IGNORECASE),
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
