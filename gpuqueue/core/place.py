"""Which card a job gets (P1)."""

from collections.abc import Sequence

from gpuqueue.core.ledger import CardLoad
from gpuqueue.core.model import Ask
from gpuqueue.core.policy import Placement
from gpuqueue.core.snapshot import Card


def matching(ask: Ask, cards: Sequence[Card]) -> list[Card]:
    """The cards that `--gpu-type` and `--gpu` leave, in the order given. A type is part of the card's name,
    upper or lower case."""
    return [
        card
        for card in cards
        if (ask.gpu_type is None or ask.gpu_type.casefold() in card.name.casefold())
        and (not ask.gpu_indexes or card.index in ask.gpu_indexes)
    ]


def wanted(ask: Ask) -> str:
    """The choice in the submitter's own options."""
    parts = []
    if ask.gpu_type is not None:
        parts.append(f"--gpu-type {ask.gpu_type}")
    if ask.gpu_indexes:
        parts.append("--gpu " + ",".join(str(index) for index in ask.gpu_indexes))
    return " ".join(parts) or "any card: the node has none"


def choose(fitting: Sequence[CardLoad], placement: Placement) -> CardLoad | None:
    """P1: the fullest card that still fits, so that large holes stay; with `spread` the one with the fewest
    jobs, then the most free VRAM. None where nothing fits."""
    if not fitting:
        return None
    if placement is Placement.SPREAD:
        return min(fitting, key=lambda load: (load.tenants, -load.free_mib, load.card.index, load.card.uuid))
    return min(fitting, key=lambda load: (load.free_mib, load.card.index, load.card.uuid))
