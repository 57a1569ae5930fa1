"""The VRAM curve of an attempt: few points, sorted, no peak lost, the same however often it was stored."""

from collections.abc import Callable
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuqueue.core.curve import MAX_POINTS, Curve, growth_mib_per_hour, with_sample

SAMPLES = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 80_000)), max_size=600).map(
    lambda steps: list(zip(accumulate(gap for gap, _ in steps), (mib for _, mib in steps), strict=True))
)


def curve_of(samples: list[tuple[int, int]]) -> Curve:
    curve: Curve = ()
    for at_s, mib in samples:
        curve = with_sample(curve, at_s, mib)
    return curve


@given(SAMPLES)
def test_it_stays_small_and_sorted_and_holds_only_what_was_seen(samples: list[tuple[int, int]]) -> None:
    curve = curve_of(samples)
    assert len(curve) <= MAX_POINTS
    assert all(before[0] < after[0] for before, after in pairwise(curve))
    assert set(curve) <= set(samples)


@given(SAMPLES)
def test_no_peak_gets_lost(samples: list[tuple[int, int]]) -> None:
    highest = max((mib for _, mib in samples), default=0)
    assert max((mib for _, mib in curve_of(samples)), default=0) == highest


@given(SAMPLES, st.integers(0, 600))
def test_a_peak_that_is_added_once_more_changes_nothing(samples: list[tuple[int, int]], which: int) -> None:
    """A daemon that comes back adds the stored peak to the stored curve."""
    curve = curve_of(samples)
    if curve:
        assert with_sample(curve, *curve[which % len(curve)]) == curve


def test_every_second_is_kept_as_long_as_there_is_room() -> None:
    samples = [(at_s, at_s) for at_s in range(MAX_POINTS)]
    assert curve_of(samples) == tuple(samples)
    assert len(curve_of([*samples, (MAX_POINTS, 0)])) == MAX_POINTS // 2 + 1


def test_a_week_is_spread_evenly() -> None:
    curve = curve_of([(at_s, 1) for at_s in range(0, 7 * 86400, 60)])
    gaps = {after[0] - before[0] for before, after in pairwise(curve)}
    assert MAX_POINTS // 2 < len(curve) <= MAX_POINTS
    assert max(gaps) - min(gaps) <= 60


@pytest.mark.parametrize(
    ("mib_at", "grown"),
    [
        (lambda at_s: 1000, 0),
        (lambda at_s: 1000 + at_s, 3600),
        (lambda at_s: 8000 - at_s // 2, -1800),
        (lambda at_s: min(at_s * 100, 5000), 0),  # loads, then stays
        (lambda at_s: 0 if at_s == 599 else 5000, 0),  # seen once more while it ended
    ],
    ids=["flat", "leak", "falls", "load", "end"],
)
def test_growth_is_measured_after_the_load(mib_at: Callable[[int], int], grown: int) -> None:
    curve = curve_of([(at_s, mib_at(at_s)) for at_s in range(600)])
    found = growth_mib_per_hour(curve)
    assert found is not None
    assert found == pytest.approx(grown, rel=0.02)


@pytest.mark.parametrize("samples", [[], [(0, 1)], [(at_s, at_s) for at_s in range(50)], [(0, 1), (600, 9)]])
def test_too_short_a_run_tells_nothing_of_growth(samples: list[tuple[int, int]]) -> None:
    assert growth_mib_per_hour(curve_of(samples)) is None
