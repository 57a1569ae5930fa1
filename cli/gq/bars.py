"""A card as a bar: what jobs use and claim, what strangers hold, what is held back, what is free."""

from typing import TYPE_CHECKING

from gpuqueue.wire.states import JobClass
from gq.terminal import Screen

if TYPE_CHECKING:
    from gpuqueue.wire.jobs import CardView

# part -> (block, ASCII stand-in, colour), in the order in which a bar shows them
PARTS: dict[str, tuple[str, str, str]] = {
    "used": ("█", "#", "green"),
    "unused": ("▒", "=", "green"),
    "outside": ("▚", "x", "red"),
    "free": ("·", ".", "dim"),
    "held back": ("░", "-", "blue"),
}

MEANING = {
    "used": "in use",
    "unused": "not yet used",
    "outside": "outside the queue",
    "free": "free",
    "held back": "held back",
}


def parts_of(card: "CardView") -> dict[str, int]:
    """The card's capacity in MiB by part. Sums to the capacity, unless more is charged than it has."""
    used = min(max(card.used_mib - card.foreign_mib, 0), card.charged_mib)
    light = sum(tenant.charge_mib for tenant in card.tenants if tenant.job_class == JobClass.LIGHT)
    taken = card.charged_mib + card.foreign_mib
    held_back = min(max(card.held_back_mib - light, 0), max(card.capacity_mib - taken, 0))
    return {
        "used": used,
        "unused": card.charged_mib - used,
        "outside": card.foreign_mib,
        "free": max(card.capacity_mib - taken - held_back, 0),
        "held back": held_back,
    }


def bar(card: "CardView", cells: int, on: Screen) -> str:
    """The parts as that many cells; a part that is there at all has one at least."""
    shares = _cells(parts_of(card), cells)
    return "".join(on.paint(_mark(part, on) * count, PARTS[part][2]) for part, count in shares.items())


def _cells(parts: dict[str, int], cells: int) -> dict[str, int]:
    total = max(sum(parts.values()), 1)
    counts = {part: max(round(mib * cells / total), 1) if mib else 0 for part, mib in parts.items()}
    while (over := sum(counts.values()) - cells) != 0:
        largest = max(counts, key=lambda part: counts[part])
        counts[largest] -= 1 if over > 0 else -1
    return counts


def legend(cards: "list[CardView]", on: Screen) -> str:
    """What the marks of these cards' bars mean."""
    shown = {part for card in cards for part, mib in parts_of(card).items() if mib}
    words = [f"{on.paint(_mark(part, on), PARTS[part][2])} {MEANING[part]}" for part in PARTS if part in shown]
    return "  ".join(words)


def _mark(part: str, on: Screen) -> str:
    return PARTS[part][0] if on.blocks else PARTS[part][1]
