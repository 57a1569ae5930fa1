"""R1, R3-R6, Z6: what becomes of a job whose attempt has ended."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuqueue.core.decisions import Finish
from gpuqueue.core.model import AfterStop, Job, Restarts, StopIntent
from gpuqueue.core.phases import legal
from gpuqueue.core.policy import Policy, RestartPolicy
from gpuqueue.core.reasons import Reason, ReasonCode, fields_of, sentence
from gpuqueue.core.restart import AttemptEnd, after_end, backoff_s, passed_over
from gpuqueue.wire.states import JobState, RestartMode
from tests.builders import GIB, NOW, running

ALWAYS, NEVER = {"restart": RestartMode.ALWAYS}, {"restart": RestartMode.NEVER}
GROW = {"grow": True}


def end(job: Job | None = None, **how: Any) -> Finish:
    return after_end(job or running(), AttemptEnd(**how), Policy(), NOW)


def stop(after: AfterStop, **changes: Any) -> StopIntent:
    values: dict[str, Any] = {
        "reason": Reason(ReasonCode.CANCELLED, {"actor": "anna"}),
        "actor": "anna",
        "after": after,
        "grace_s": 10,
        "asked_at": NOW,
        "signalled": True,
    }
    return StopIntent(**values | changes)


@pytest.mark.parametrize(
    "how, asking, state, told",
    [
        ({"exit_status": 0}, {}, JobState.SUCCEEDED, "finished"),
        ({"exit_status": 0}, ALWAYS, JobState.BACKOFF, "finished"),
        ({"exit_status": 3}, {}, JobState.BACKOFF, "exited with status 3"),
        ({"exit_status": 3}, ALWAYS, JobState.BACKOFF, "exited with status 3"),
        ({"exit_status": 3}, NEVER, JobState.FAILED, "exited with status 3"),
        ({"signal": 11}, {}, JobState.BACKOFF, "killed by SIGSEGV, not by gpuqueue"),
        ({"signal": 44}, NEVER, JobState.FAILED, "killed by signal 44, not by gpuqueue"),
        ({"lost": True}, NEVER, JobState.FAILED, "its exit status is lost: nobody who watched it lived to note it"),
        ({"lost": True}, {}, JobState.BACKOFF, "its exit status is lost: nobody who watched it lived to note it"),
        ({"failed_start": "no such command: trian"}, {}, JobState.BACKOFF, "could not start: no such command: trian"),
        # the machine's fault: free of charge (Z6, R6)
        ({"lost": True, "old_boot": True}, {}, JobState.QUEUED, "the machine restarted"),
        ({"lost": True, "old_boot": True}, NEVER, JobState.FAILED, "the machine restarted"),
        ({"exit_status": 0, "old_boot": True}, {}, JobState.SUCCEEDED, "finished"),
        ({"signal": 9, "card_fault": "gone", "card": "1"}, {}, JobState.QUEUED, "card 1 failed: gone"),
    ],
)
def test_outcome(how: dict[str, Any], asking: dict[str, Any], state: JobState, told: str) -> None:
    finish = end(running(asking=asking), **how)
    assert (finish.state, sentence(finish.reason)) == (state, told)
    assert (finish.not_before is not None) is (state is JobState.BACKOFF)
    if state is JobState.QUEUED:
        assert finish.restarts.failures_in_row == 0


@pytest.mark.parametrize(
    "after, state", [("cancel", JobState.CANCELLED), ("stop", JobState.STOPPED), ("requeue", JobState.QUEUED)]
)
@pytest.mark.parametrize("how", [{"exit_status": 0}, {"exit_status": 1}, {"signal": 15}, {"lost": True}])
@pytest.mark.parametrize("asking", [{}, ALWAYS, NEVER])
def test_a_stop_decides_whatever_the_restart_policy(
    after: str, state: JobState, how: dict[str, Any], asking: dict[str, Any]
) -> None:
    """Z6."""
    finish = end(running(asking=asking), stop=stop(AfterStop(after)), **how)
    assert (finish.state, finish.reason.code) == (state, ReasonCode.CANCELLED)
    assert finish.restarts == Restarts()


def test_a_job_that_finished_before_the_signal_has_finished() -> None:
    unsent = {"signalled": False}
    assert end(exit_status=0, stop=stop(AfterStop.CANCEL, **unsent)).state is JobState.SUCCEEDED
    assert end(exit_status=1, stop=stop(AfterStop.CANCEL, **unsent)).state is JobState.CANCELLED
    assert end(exit_status=0, stop=stop(AfterStop.REQUEUE, **unsent)).state is JobState.QUEUED


def test_only_a_victim_of_reclaim_goes_ahead() -> None:
    """Q6."""
    assert end(signal=15, stop=stop(AfterStop.REQUEUE, beneficiary=7)).ahead
    assert not end(signal=15, stop=stop(AfterStop.REQUEUE)).ahead


def test_scenario_20_pauses_grow_and_the_fourth_failure_ends_it() -> None:
    """R1, R3."""
    job, pauses = running(), []
    for _ in range(3):
        finish = end(job, exit_status=1)
        assert finish.state is JobState.BACKOFF and finish.not_before is not None
        pauses.append(finish.not_before - NOW)
        job = replace(job, restarts=finish.restarts)
    assert pauses == sorted(set(pauses))
    finish = end(job, exit_status=1)
    assert finish.state is JobState.STOPPED
    assert sentence(finish.reason) == ("failed 4 times in a row without a newer checkpoint; last: exited with status 1")


@given(st.integers(1, 10**9), st.integers(1, 100))
def test_backoff_is_bounded_and_depends_on_job_and_count_only(job_id: int, failures: int) -> None:
    policy = RestartPolicy()
    pause_s = backoff_s(job_id, failures, policy)
    plain_s = min(600, 10 * 2 ** (failures - 1))
    assert plain_s <= pause_s <= min(600, plain_s * 5 // 4)
    assert pause_s == backoff_s(job_id, failures, policy)


def test_backoff_scatters_jobs_that_fell_together() -> None:
    assert len({backoff_s(job_id, 4, RestartPolicy()) for job_id in range(50)}) > 10


def test_a_newer_checkpoint_ends_the_row() -> None:
    """R3: only a newer one does."""
    tired = Restarts(failures_in_row=3, newest_step=100, total=3, recent_at=(NOW - 1,))
    assert end(running(restarts=tired), exit_status=1, newest_step=100).state is JobState.STOPPED
    finish = end(running(restarts=tired), exit_status=1, newest_step=200)
    assert finish.state is JobState.BACKOFF
    assert (finish.restarts.failures_in_row, finish.restarts.newest_step, finish.restarts.total) == (1, 200, 4)


def test_twenty_restarts_within_a_day_end_it() -> None:
    """R3: older ones do not count, and progress does not help."""
    restless = Restarts(recent_at=tuple(range(NOW - 86399, NOW - 86379)), total=20)
    finish = end(running(restarts=restless), exit_status=1, newest_step=5)
    assert finish.state is JobState.STOPPED
    assert sentence(finish.reason) == "restarted 20 times within 24h; last: exited with status 1"
    older = replace(restless, recent_at=(NOW - 86400, *restless.recent_at[1:]))
    finish = end(running(restarts=older), exit_status=1, newest_step=5)
    assert finish.state is JobState.BACKOFF
    assert len(finish.restarts.recent_at) == 20 and finish.restarts.recent_at[-1] == NOW


def test_a_checkpoint_that_nobody_gets_past_is_passed_over() -> None:
    """R4: two attempts failed from it, and neither made a newer one."""
    job = running(restarts=Restarts(newest_step=1000))
    for expected in ((), ("run/checkpoint-1000",)):
        finish = end(job, exit_status=1, resumed_from="run/checkpoint-1000", newest_step=1000)
        job = replace(job, restarts=finish.restarts)
        assert passed_over(job) == expected
    moved = running(restarts=Restarts(newest_step=1000))
    for step in (1100, 1200):
        finish = end(moved, exit_status=1, resumed_from="run/checkpoint-1000", newest_step=step)
        moved = replace(moved, restarts=finish.restarts)
    assert passed_over(moved) == ()


def test_a_stopped_attempt_counts_against_no_checkpoint() -> None:
    finish = end(signal=15, stop=stop(AfterStop.REQUEUE), resumed_from="run/checkpoint-1000")
    assert finish.restarts.failures_from is None


@pytest.mark.parametrize("cause", ["host_out_of_memory", "disk_full", "shm_full", "missing_module", "wrong_build"])
def test_causes_that_would_only_repeat_are_not_retried(cause: str) -> None:
    """R5."""
    finish = end(exit_status=1, cause=cause, advice="free some space")
    assert finish.state is JobState.FAILED
    assert sentence(finish.reason) == "exited with status 1; not retried: free some space"
    assert sentence(end(exit_status=1, cause=cause).reason).endswith(cause.replace("_", " "))


def test_out_of_memory_ends_with_the_advice() -> None:
    finish = end(exit_status=1, cause="out_of_memory", advice="batch 2 instead of 4", peak_mib=8 * GIB)
    assert (finish.state, sentence(finish.reason)) == (
        JobState.FAILED,
        "ran out of GPU memory: batch 2 instead of 4",
    )


def test_grow_requeues_once_with_the_peak_and_a_margin() -> None:
    job = running(claim_mib=8 * GIB, asking=GROW)
    finish = end(job, exit_status=1, cause="out_of_memory", peak_mib=10 * GIB)
    assert (finish.state, finish.claim_mib) == (JobState.QUEUED, 11 * GIB)
    assert end(job, exit_status=1, cause="out_of_memory", peak_mib=2 * GIB).claim_mib == 8 * GIB + 819
    assert end(job, exit_status=1, cause="out_of_memory").state is JobState.FAILED
    again = replace(job, restarts=finish.restarts)
    assert end(again, exit_status=1, cause="out_of_memory", peak_mib=10 * GIB).state is JobState.FAILED


def test_grow_claims_no_more_than_could_ever_start() -> None:
    job = running(claim_mib=8 * GIB, asking=GROW)
    full = {"exit_status": 1, "cause": "out_of_memory", "advice": "use less", "peak_mib": 10 * GIB}
    assert end(job, **full, largest_mib=10 * GIB + 100).claim_mib == 10 * GIB + 100
    finish = end(job, **full, largest_mib=10 * GIB)
    assert finish.state is JobState.FAILED
    assert sentence(finish.reason) == (
        "ran out of GPU memory: use less (--grow: 10.0 GiB is the most that could start here)"
    )
    unmeasured = end(job, **full | {"peak_mib": None}, largest_mib=10 * GIB)
    assert sentence(unmeasured.reason) == "ran out of GPU memory: use less"


def test_a_cap_of_its_own_is_out_of_memory() -> None:
    capped = {"exit_status": 1, "cause": "quota_cap", "peak_mib": 10 * GIB}
    assert end(**capped).reason.code is ReasonCode.OUT_OF_MEMORY
    assert end(running(claim_mib=8 * GIB, asking=GROW), **capped).claim_mib == 11 * GIB


@pytest.mark.parametrize("asking", [{}, ALWAYS, NEVER])
def test_what_is_missing_at_the_start_for_good_is_not_tried_again(asking: dict[str, Any]) -> None:
    """R5: unlike a file server that does not answer."""
    job = running(asking=asking)
    missing = end(job, failed_start="trian: no such command", exit_status=127, hopeless=True)
    assert (missing.state, sentence(missing.reason)) == (JobState.FAILED, "could not start: trian: no such command")
    stale = end(failed_start="cannot change directory to /nfs: Stale file handle", exit_status=126)
    assert stale.state is JobState.BACKOFF


def test_a_fault_of_the_program_itself_is_not_tried_again() -> None:
    found: dict[str, Any] = {"exit_status": 2, "cause": "program_error", "found": "program error"}
    finish = end(**found, advice="The script is gone.", hopeless=True)
    told = "exited with status 2: program error; not retried: the script is gone."
    assert (finish.state, sentence(finish.reason)) == (JobState.FAILED, told)
    assert end(**found, advice="The script is gone.").state is JobState.BACKOFF


def test_a_job_that_ends_says_what_of_and_what_to_do() -> None:
    """Z1: whatever ended it, and not yet where it is tried again."""
    dies: dict[str, Any] = {"exit_status": 1, "found": "probably leak", "advice": "use .item()"}
    told = "exited with status 1: probably leak. Use .item()"
    assert sentence(end(running(asking=NEVER), **dies).reason) == told
    assert sentence(end(**dies).reason) == "exited with status 1: probably leak"
    crashed = end(running(restarts=Restarts(failures_in_row=3)), **dies)
    assert sentence(crashed.reason) == f"failed 4 times in a row without a newer checkpoint; last: {told}"
    often = end(running(restarts=Restarts(recent_at=(NOW,) * 20)), **dies)
    assert sentence(often.reason) == f"restarted 20 times within 24h; last: {told}"
    killed = end(running(asking=NEVER), signal=9, found="host out of memory", advice="less")
    assert sentence(killed.reason) == "killed by SIGKILL, not by gpuqueue: host out of memory. Less"
    # What only guesses, or repeats the status, has no words, and then its advice is left out, too.
    assert sentence(end(running(asking=NEVER), exit_status=1, advice="guess").reason) == "exited with status 1"


def test_fragmentation_is_retried_once_with_expandable_segments() -> None:
    finish = end(exit_status=1, cause="fragmentation")
    assert (finish.state, finish.expandable_segments) == (JobState.BACKOFF, True)
    again = running(restarts=finish.restarts)
    assert end(again, exit_status=1, cause="fragmentation").reason.code is ReasonCode.OUT_OF_MEMORY
    assert end(again, exit_status=1).expandable_segments


def test_victims_of_a_neighbour_restart_free_three_times() -> None:
    """O2, R5."""
    job = running()
    for number in (1, 2, 3):
        finish = end(job, exit_status=1, cause="neighbour", advice="job 7 of eve declared 1 and held 9")
        assert "promised to it: job 7 of eve declared 1 and held 9" in sentence(finish.reason)
        assert (finish.state, finish.restarts.as_victim, finish.restarts.failures_in_row) == (
            JobState.QUEUED,
            number,
            0,
        )
        job = replace(job, restarts=finish.restarts)
    finish = end(job, exit_status=1, cause="neighbour")
    assert (finish.state, finish.restarts.failures_in_row) == (JobState.BACKOFF, 1)


@pytest.mark.parametrize("cause", ["hardware", "driver"])
def test_machine_faults_are_no_failure_of_the_job_but_pause(cause: str) -> None:
    """Z6: and 20 a day still end it, since nobody has drained the card."""
    job, pauses = running(), []
    for _ in range(20):
        finish = end(job, signal=6, cause=cause)
        assert finish.state is JobState.BACKOFF and finish.not_before is not None
        assert finish.restarts.failures_in_row == 0
        pauses.append(finish.not_before - NOW)
        job = replace(job, restarts=finish.restarts)
    assert pauses == sorted(pauses) and pauses[-1] == 600
    assert end(job, signal=6, cause=cause).state is JobState.STOPPED


CAUSES = [
    None,
    "out_of_memory",
    "quota_cap",
    "fragmentation",
    "neighbour",
    "hardware",
    "disk_full",
    "leak",
    "program_error",
]


@given(
    st.builds(
        AttemptEnd,
        exit_status=st.sampled_from([None, 0, 1, 137]),
        signal=st.sampled_from([None, 9, 15]),
        lost=st.booleans(),
        failed_start=st.sampled_from([None, "no such directory"]),
        stop=st.sampled_from([None, stop(AfterStop.CANCEL), stop(AfterStop.REQUEUE, signalled=False)]),
        old_boot=st.booleans(),
        card_fault=st.sampled_from([None, "fell off the bus"]),
        newest_step=st.sampled_from([None, 1, 100]),
        resumed_from=st.sampled_from([None, "a"]),
        cause=st.sampled_from(CAUSES),
        found=st.sampled_from(["", "leak"]),
        advice=st.sampled_from(["", "use less"]),
        hopeless=st.booleans(),
        peak_mib=st.sampled_from([None, 5 * GIB]),
        largest_mib=st.sampled_from([None, 0, 5 * GIB, 20 * GIB]),
    ),
    st.builds(
        Restarts,
        failures_in_row=st.integers(0, 5),
        as_victim=st.integers(0, 4),
        newest_step=st.sampled_from([None, 50]),
        grown=st.booleans(),
        used_expandable_segments=st.booleans(),
    ),
    st.sampled_from(RestartMode),
    st.booleans(),
)
def test_every_end_has_a_legal_next_state_and_a_whole_sentence(
    how: AttemptEnd, restarts: Restarts, mode: RestartMode, grow: bool
) -> None:
    """Z1: and counters never go back but by a newer checkpoint or a success."""
    job = running(restarts=restarts, asking={"restart": mode, "grow": grow})
    finish = after_end(job, how, Policy(), NOW)
    assert legal(JobState.RUNNING, finish.state)
    assert set(finish.reason.fields) == fields_of(finish.reason.code)
    assert "?" not in sentence(finish.reason)
    assert (finish.not_before is not None) is (finish.state is JobState.BACKOFF)
    assert finish.restarts.total >= restarts.total and finish.restarts.as_victim >= restarts.as_victim
