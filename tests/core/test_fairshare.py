"""S1: usage fades by half every half-life, in whole numbers."""

from hypothesis import given
from hypothesis import strategies as st

from gpuqueue.core.fairshare import accrued, decayed, share

DAY = 86400
usages, elapsed = st.integers(0, 10**15), st.integers(0, 60 * DAY)


def test_half_after_a_half_life() -> None:
    assert [decayed(1 << 20, n * DAY, DAY) for n in range(4)] == [1 << 20, 1 << 19, 1 << 18, 1 << 17]
    assert decayed(10**9, DAY // 2, DAY) == 707_106_781  # 10^9 / √2


@given(usages, elapsed)
def test_close_to_the_formula(usage: int, seconds: int) -> None:
    exact = usage * 2 ** (-seconds / DAY)
    assert abs(decayed(usage, seconds, DAY) - exact) <= 64 + exact / 10**6


@given(usages, elapsed, elapsed)
def test_two_steps_are_as_good_as_one(usage: int, first: int, second: int) -> None:
    stepwise = decayed(decayed(usage, first, DAY), second, DAY)
    assert abs(stepwise - decayed(usage, first + second, DAY)) <= 128 + usage // 10**6


def test_every_second_counts() -> None:
    """A daemon that decays each second loses what one that decays once a day loses, but for rounding."""
    usage = 10**12
    for _ in range(3600):
        usage = decayed(usage, 1, DAY)
    assert abs(usage - decayed(10**12, 3600, DAY)) < 10**12 // 10**6


def test_edges() -> None:
    assert decayed(5, 0, DAY) == 5
    assert decayed(5, -3, DAY) == 5
    assert decayed(5, 1, 0) == 0
    assert accrued(0, 10, DAY, 2048) == 20480
    assert (share(100, 3), share(100, 0)) == (33, 100)
