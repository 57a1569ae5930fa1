"""The one table of legal moves."""

from itertools import product

import pytest

from gpuqueue.core.phases import MOVES, legal
from gpuqueue.wire.states import FINAL_STATES, JobState


def test_every_state_has_its_row_and_final_ones_lead_back_to_the_queue_alone() -> None:
    assert set(MOVES) == set(JobState)
    assert {state for state, onward in MOVES.items() if onward == {JobState.QUEUED}} == FINAL_STATES


def test_only_what_waits_starts_and_only_what_started_runs() -> None:
    assert {state for state in JobState if legal(state, JobState.STARTING)} == {JobState.QUEUED, JobState.BACKOFF}
    assert {state for state in JobState if legal(state, JobState.RUNNING)} == {JobState.STARTING}


def test_a_job_that_is_being_stopped_never_runs_again_in_this_attempt() -> None:
    assert not legal(JobState.STOPPING, JobState.RUNNING)
    assert {state for state in JobState if legal(state, JobState.STOPPING)} == {JobState.STARTING, JobState.RUNNING}


@pytest.mark.parametrize("before, after", list(product(JobState, sorted(FINAL_STATES))))
def test_a_job_that_never_ran_cannot_succeed_or_fail(before: JobState, after: JobState) -> None:
    waiting = before in (JobState.QUEUED, JobState.BACKOFF)
    ran = after in (JobState.SUCCEEDED, JobState.FAILED)
    assert legal(before, after) is (before not in FINAL_STATES and not (waiting and ran))
