"""Leaks: memory that grows as long as the run lasts, with the slope."""

import re
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

SECONDS_PER_HOUR = 3600
_MIN_SAMPLES = 8
_WARM_UP = 0.1  # of the run: loading, first steps, autotuning
_BASE_SHARE = 0.1  # traced back to the start, a leak comes from a working run, a load from nothing
_MIN_GROWTH_MIB = 256
_MIN_GROWTH_SHARE = 0.1
_MIN_QUARTER_SHARE = 0.12  # every quarter of the run adds; a plateau or a single jump does not

_READING = re.compile(
    r"\b(?:gpu[_ ]?mem\w*|cuda[_ ]?mem\w*|mem(?:ory)?(?:[_ ](?:usage|used|allocated|reserved))?|vram"
    r"|alloc(?:ated)?)\b[^\d\n]{0,16}?(\d+(?:\.\d+)?)\s?([GM])i?B?\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Growth:
    """A steady growth: MiB at its start and end, and how fast (None where no clock was seen)."""

    first_mib: int
    last_mib: int
    samples: int
    mib_per_hour: int | None


def steady_growth(curve: tuple[tuple[int, int], ...]) -> Growth | None:
    """The growth of a curve of (second, MiB) that looks like a leak, else None.

    After the warm-up the medians of the four quarters must rise each time by a fair share of the whole.
    """
    points = sorted(curve)
    start = points[0][0] if points else 0
    points = points[int(len(points) * _WARM_UP) :]
    if len(points) < _MIN_SAMPLES:
        return None
    size = len(points) // 4
    quarters = [points[size * part : size * (part + 1)] for part in range(3)] + [points[size * 3 :]]
    middles = [int(median(mib for _, mib in quarter)) for quarter in quarters]
    total = middles[-1] - middles[0]
    if total < max(_MIN_GROWTH_MIB, int(_MIN_GROWTH_SHARE * middles[-1])):
        return None
    if any(after - before < _MIN_QUARTER_SHARE * total for before, after in pairwise(middles)):
        return None
    early, late = (int(median(at for at, _ in quarter)) for quarter in (quarters[0], quarters[-1]))
    if late <= early:
        return None
    base = middles[0] - total * (early - start) // (late - early)
    if base < _BASE_SHARE * middles[-1]:
        return None
    slope = total * SECONDS_PER_HOUR // (late - early)
    return Growth(points[0][1], points[-1][1], len(points), slope)


def growth_in_log(lines: tuple[str, ...]) -> Growth | None:
    """The same from memory readings that the program itself printed; without a clock, so without a slope."""
    readings: list[int] = []
    for line in lines:
        found = _READING.search(line)
        if found and "Tried to allocate" not in line and "total capa" not in line:
            readings.append(int(float(found[1]) * (1024 if found[2].upper() == "G" else 1)))
    growth = steady_growth(tuple(enumerate(readings)))
    if growth is None:
        return None
    return Growth(growth.first_mib, growth.last_mib, growth.samples, None)
