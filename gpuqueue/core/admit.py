"""What is refused at submit because it could never start (Q5), with the number that is in the way.

Only what cannot change by waiting counts: capacity, what is held back, the quota. Strangers, running jobs and
drained cards never make a refusal.
"""

from collections.abc import Sequence

from gpuqueue.core.ledger import by_right_mib
from gpuqueue.core.model import Ask
from gpuqueue.core.place import matching, wanted
from gpuqueue.core.policy import Policy
from gpuqueue.core.reasons import Reason, ReasonCode
from gpuqueue.core.snapshot import Account, Card
from gpuqueue.wire.states import JobClass


def refusal(ask: Ask, account: Account, cards: Sequence[Card], policy: Policy) -> Reason | None:
    """Why a job could never start here, or None. `cards` are all cards of the node; where they cannot be read
    (none at all, or a capacity of 0) nothing that depends on them is refused: a fault is not the absence of a card.

    Borrowing does not exist yet: what could never start by right (Q3) is refused whatever the policy says."""
    if ask.cards == 0:
        return None
    if ask.exclusive:
        return Reason(ReasonCode.NO_EXCLUSIVE)
    if cards and ask.cards > len(cards):
        return Reason(ReasonCode.TOO_MANY_CARDS, {"cards": ask.cards, "node_cards": len(cards)})
    if ask.cards > 1:
        return Reason(ReasonCode.ONE_CARD_ONLY, {"cards": ask.cards})
    if not cards:
        return None
    suitable = matching(ask, cards)
    if not suitable:
        return Reason(ReasonCode.NO_CARD_MATCHES, {"wanted": wanted(ask)})
    if any(card.capacity_mib == 0 for card in cards):
        return None
    return _card_in_the_way(ask, suitable) or _quota_in_the_way(ask, account)


def largest_claim_mib(ask: Ask, account: Account, cards: Sequence[Card]) -> int | None:
    """The most per card that such a job could ever claim here (Q5); None where the cards cannot be read."""
    suitable = matching(ask, cards)
    if ask.cards == 0 or not suitable or any(card.capacity_mib == 0 for card in cards):
        return None
    on_a_card = max(by_right_mib(card, ask.job_class, 0, 0, 0) for card in suitable)
    return max(0, min(on_a_card, account.nominal(ask.job_class) // ask.cards))


def _card_in_the_way(ask: Ask, suitable: Sequence[Card]) -> Reason | None:
    largest = max(suitable, key=lambda card: (card.capacity_mib, -card.index))
    if ask.claim_mib > largest.capacity_mib:
        fields = {"need_mib": ask.claim_mib, "capacity_mib": largest.capacity_mib}
        return Reason(ReasonCode.CLAIM_OVER_CARD, fields)
    roomiest = max(suitable, key=lambda card: (by_right_mib(card, ask.job_class, 0, 0, 0), -card.index))
    most_mib = by_right_mib(roomiest, ask.job_class, 0, 0, 0)
    if ask.claim_mib <= most_mib:
        return None
    fields = {"need_mib": ask.claim_mib, "most_mib": most_mib, "capacity_mib": roomiest.capacity_mib}
    if ask.job_class is JobClass.LIGHT:
        return Reason(ReasonCode.CLAIM_OVER_LIGHT_PART, fields)
    return Reason(ReasonCode.CLAIM_OVER_TRAIN_PART, fields | {"held_back_mib": roomiest.held_back_mib})


def _quota_in_the_way(ask: Ask, account: Account) -> Reason | None:
    nominal_mib = account.nominal(ask.job_class)
    if nominal_mib <= 0:
        return Reason(ReasonCode.NO_QUOTA, {"account": account.name, "job_class": ask.job_class})
    if ask.claim_mib * ask.cards > nominal_mib:
        fields: dict[str, str | int] = {
            "need_mib": ask.claim_mib * ask.cards,
            "account": account.name,
            "nominal_mib": nominal_mib,
            "job_class": ask.job_class,
        }
        return Reason(ReasonCode.CLAIM_OVER_QUOTA, fields)
    return None
