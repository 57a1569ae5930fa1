"""The VRAM curve of one attempt: (second since its start, MiB on its fullest card), few points, no peak lost.

Time is cut into equal spans, each of which keeps its highest sample. How wide they are follows from the newest second
alone, so a curve that was stored is gone on with as if nothing had been in between.
"""

from statistics import median_low

MAX_POINTS = 240
FEWEST_FOR_GROWTH, SHORTEST_FOR_GROWTH_S = 16, 60

Curve = tuple[tuple[int, int], ...]


def with_sample(curve: Curve, at_s: int, mib: int) -> Curve:
    """The curve with one more sample, at most MAX_POINTS points, sorted by time."""
    width_s = _span_s(max(at_s, curve[-1][0]) if curve else at_s)
    highest: dict[int, tuple[int, int]] = {}
    for point in (*curve, (at_s, mib)):
        span = point[0] // width_s
        if span not in highest or highest[span][1] < point[1]:
            highest[span] = point
    return tuple(highest[span] for span in sorted(highest))


def _span_s(last_s: int) -> int:
    """The smallest power of two that cuts 0..last_s into at most MAX_POINTS spans."""
    width_s = 1
    while last_s // width_s >= MAX_POINTS:
        width_s *= 2
    return width_s


def growth_mib_per_hour(curve: Curve) -> int | None:
    """How fast it grew from the middle of its second quarter to that of its last: what a run loads at first is no
    growth. None where it is too short to tell."""
    quarter = len(curve) // 4
    if len(curve) < FEWEST_FOR_GROWTH or curve[-1][0] - curve[0][0] < SHORTEST_FOR_GROWTH_S:
        return None
    early, late = curve[quarter : 2 * quarter], curve[-quarter:]
    grown_mib = median_low(mib for _, mib in late) - median_low(mib for _, mib in early)
    return grown_mib * 3600 // (median_low(at for at, _ in late) - median_low(at for at, _ in early))
