"""Claims from history and estimates, what is said of a claim that is far from them, and what estimates are corrected
by."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuqueue.core.claims import (
    BOUNDS_PERMILLE,
    RECENT,
    STEP_MIB,
    Correction,
    correction,
    evidence,
    from_estimate,
    from_history,
    newest_out_of_memory,
    remark,
    told_nothing,
)
from gpuqueue.core.history import PastRun, Work
from gpuqueue.wire.states import RunState
from tests.builders import GIB
from tests.store.full import FULL_RUN

WORK = Work(key="k", program="p", cards=1, model="Qwen2.5-7B", family="qwen2.5")
LIKE = replace(WORK, key="other arguments")
PEAK = 12083  # 11.8 GiB


def run(peak_mib: int | None = PEAK, *, of: Work = WORK, id: int = 1, **changes: Any) -> PastRun:
    values = {"state": RunState.SUCCEEDED, "cause": None, "ran_s": 60, "ended_unix": 1_700_000_000 + id}
    return replace(FULL_RUN, id=id, job_id=id, work=of, peak_mib=peak_mib, **values | changes)


def runs(*peaks_mib: int, **changes: Any) -> list[PastRun]:
    return [run(peak_mib, id=number, **changes) for number, peak_mib in enumerate(peaks_mib, start=1)]


# Which runs tell


@pytest.mark.parametrize(
    "changes",
    [
        {"peak_mib": None},
        {"peak_mib": 0},
        {"state": RunState.FAILED},
        {"state": RunState.CANCELLED},
        {"state": RunState.FAILED, "ran_s": 9000, "cause": "out_of_memory"},
        {"state": RunState.FAILED, "ran_s": 9000, "cause": "neighbour"},
        {"of": replace(WORK, key="k2", program="p2")},
        {"of": replace(WORK, cards=2)},
        {"of": replace(LIKE, model="Qwen2.5-14B")},
        {"of": replace(LIKE, model=None)},
        {"of": replace(LIKE, cards=2)},
    ],
    ids=str,
)
def test_a_run_that_does_not_tell_what_the_work_takes_counts_for_nothing(changes: dict[str, Any]) -> None:
    assert evidence(WORK, [run(**changes)]) is None


@pytest.mark.parametrize("state", RunState)
def test_a_run_that_was_long_at_work_counts_however_it_ended(state: RunState) -> None:
    assert evidence(WORK, [run(state=state, ran_s=300)]) is not None


def test_runs_of_exactly_this_count_before_those_of_the_same_program() -> None:
    exact, like = run(1000), run(9000, of=LIKE, id=2)
    found = evidence(WORK, [like, exact])
    assert found is not None
    assert (found.exact, found.runs) == (True, (exact,))
    found = evidence(WORK, [like])
    assert found is not None
    assert (found.exact, found.runs) == (False, (like,))
    assert "other arguments" in str(found)


def test_only_the_newest_count() -> None:
    found = evidence(WORK, runs(20 * GIB, *[GIB] * RECENT))
    assert found is not None
    assert found.peak_mib == GIB
    assert len(found.runs) == RECENT


# Claims


def claim_of(*peaks_mib: int, most_mib: int | None = None) -> int:
    found = evidence(WORK, runs(*peaks_mib))
    assert found is not None
    return from_history(found, most_mib).mib


@pytest.mark.parametrize(
    ("peaks_mib", "claim_mib"),
    [
        ((4096,), 4608),  # at least half a GiB of margin
        ((4096, 3000, 4097), 4864),  # the highest counts, rounded up
        ((20480,), 22528),  # ten percent
        ((1,), 768),
    ],
)
def test_the_claim_is_the_highest_peak_and_a_margin(peaks_mib: tuple[int, ...], claim_mib: int) -> None:
    assert claim_of(*peaks_mib) == claim_mib


@given(st.lists(st.integers(1, 80 * GIB), min_size=1, max_size=RECENT), st.none() | st.integers(0, 80 * GIB))
def test_a_claim_covers_every_peak_and_no_more_than_can_run(peaks_mib: list[int], most_mib: int | None) -> None:
    free, bound = claim_of(*peaks_mib), claim_of(*peaks_mib, most_mib=most_mib)
    assert max(peaks_mib) <= bound <= free
    assert free % STEP_MIB == 0
    if most_mib is not None and most_mib >= max(peaks_mib):
        assert bound <= most_mib


def test_it_says_how_many_runs_it_rests_on() -> None:
    found = evidence(WORK, runs(*[4096] * 3))
    assert found is not None
    assert from_history(found, None).why == "4.5 GiB claimed: three runs peaked at 4.0 GiB"


def test_a_claim_from_an_estimate_says_whether_it_was_ever_checked() -> None:
    unchecked = from_estimate(10 * GIB, None, None)
    assert unchecked.mib == 12 * GIB
    assert "no run has shown yet" in unchecked.why
    assert "margin" not in unchecked.why
    cut = from_estimate(10 * GIB, None, 11 * GIB)
    assert cut.mib == 11 * GIB
    assert cut.why.endswith("; 12.0 GiB with the usual margin is more than could ever start here")
    checked = from_estimate(10 * GIB, Correction(runs=14, permille=930), None)
    assert checked.mib == 10496  # 9523 MiB and a tenth
    assert "calibrated on 14 runs: × 0.93" in checked.why


# Remarks


def said(claim_mib: int, *peaks_mib: int, of: Work = WORK) -> str | None:
    return remark(claim_mib, evidence(WORK, runs(*peaks_mib, of=of)))


def test_a_claim_far_above_history_is_remarked_on() -> None:
    assert said(22 * GIB, *[PEAK] * 6) == "six runs peaked at 11.8 GiB; you ask for 22.0 GiB"
    assert said(22 * GIB, PEAK, 9000) == "two runs peaked at up to 11.8 GiB; you ask for 22.0 GiB"
    assert "one run like it" in (said(22 * GIB, PEAK, of=LIKE) or "")


def test_a_claim_under_history_is_told_what_may_happen() -> None:
    assert "three runs peaked at 11.8 GiB; you ask for 8.0 GiB: it may be stopped" in (said(8 * GIB, *[PEAK] * 3) or "")


@given(st.integers(1, 80 * GIB))
def test_nothing_is_said_of_what_auto_would_claim(peak_mib: int) -> None:
    found = evidence(WORK, runs(peak_mib))
    assert found is not None
    assert remark(from_history(found, None).mib, found) is None
    assert remark(peak_mib, found) is None


def test_a_claim_far_from_its_estimate_is_remarked_on_where_there_is_no_history() -> None:
    assert remark(30 * GIB, None, 10 * GIB) == "the estimate is 10.0 GiB; you ask for 30.0 GiB"
    assert remark(4 * GIB, None, 10 * GIB) == "the estimate is 10.0 GiB; you ask for 4.0 GiB"
    assert remark(10 * GIB, None, 10 * GIB) is None
    assert remark(10 * GIB, None) is None
    assert "calibrated on four runs" in (remark(30 * GIB, None, 10 * GIB, Correction(runs=4, permille=1100)) or "")
    assert remark(PEAK, evidence(WORK, runs(PEAK)), 40 * GIB) is None  # what was measured counts for more


# Corrections


def pairs(*permilles: int, **changes: Any) -> list[PastRun]:
    return [run(permille, id=number, estimate_mib=1000, **changes) for number, permille in enumerate(permilles)]


def test_the_correction_is_the_median_of_peak_over_estimate() -> None:
    assert correction(pairs(900, 1500, 930)) == Correction(runs=3, permille=930)


@pytest.mark.parametrize(
    "of", [pairs(900, 930), pairs(900, 930, 940, state=RunState.FAILED), [*pairs(900, 930), run(estimate_mib=None)]]
)
def test_too_few_runs_with_both_correct_nothing(of: list[PastRun]) -> None:
    assert correction(of) is None


@given(st.lists(st.integers(1, 100_000), min_size=3, max_size=20))
def test_a_correction_stays_within_bounds(permilles: list[int]) -> None:
    found = correction(pairs(*permilles))
    assert found is not None
    assert BOUNDS_PERMILLE[0] <= found.permille <= BOUNDS_PERMILLE[1]
    assert found.runs == len(permilles)


# Out of memory


def test_a_newest_run_that_ran_out_of_memory_is_found() -> None:
    good, dead = run(id=1), run(id=2, state=RunState.FAILED, cause="out_of_memory")
    assert newest_out_of_memory(WORK, [dead, good]) == dead
    assert newest_out_of_memory(WORK, [good, replace(dead, work=LIKE)]) is None
    assert newest_out_of_memory(WORK, [good, replace(dead, id=0)]) is None
    assert newest_out_of_memory(WORK, []) is None


@pytest.mark.parametrize(
    ("newest", "said"),
    [
        ({}, None),
        ({"cause": "out_of_memory", "state": RunState.FAILED}, None),  # which is said elsewhere
        ({"peak_mib": None, "ran_s": 2}, "its newest run, job 2, was too short to be measured: 2s"),
        ({"peak_mib": None}, "its newest run, job 2, held no VRAM that was measured"),
        (
            {"state": RunState.FAILED},
            "its newest run, job 2, failed after 1m00s with a peak of 11.8 GiB: too early to tell",
        ),
        ({"of": LIKE, "state": RunState.FAILED}, None),
    ],
)
def test_a_run_that_told_nothing_is_named(newest: dict[str, Any], said: str | None) -> None:
    assert told_nothing(WORK, [run(id=1), run(id=2, **newest)]) == said
