"""A card that is gone takes its jobs along: they are requeued, free of charge (H1, Z6), but for those that must not
run twice.

Only a card that the driver calls lost: one that cannot be read for a while costs nobody a job.
"""

from collections.abc import Sequence

from gpuqueue.core.decisions import Stop
from gpuqueue.core.model import AfterStop, Attempt, Job
from gpuqueue.core.reasons import Reason, ReasonCode
from gpuqueue.core.snapshot import Card
from gpuqueue.wire.states import RestartMode


def judge(job: Job, attempt: Attempt, cards: Sequence[Card]) -> Stop | None:
    """The stop of a job that has lost one of its cards."""
    for card in cards:
        if card.gone and card.uuid in attempt.cards:
            reason = Reason(ReasonCode.CARD_LOST, {"card": card.index, "why": card.drained or "lost"})
            after = AfterStop.STOP if job.ask.restart is RestartMode.NEVER else AfterStop.REQUEUE
            return Stop(job_id=job.id, reason=reason, after=after)
    return None
