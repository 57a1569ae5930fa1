"""The contract of engine.ports.Store, run on every implementation."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuqueue.core.model import Attempt, AttemptPhase, Job
from gpuqueue.core.policy import Nominal
from gpuqueue.engine.ports import Store
from gpuqueue.store.open import open_store
from gpuqueue.wire.jobs import SubmitRequest
from gpuqueue.wire.states import FINAL_STATES, JobState
from tests.builders import attempt, job
from tests.store.full import FULL_ATTEMPT, FULL_JOB, FULL_REQUEST, FULL_RUN

Reopen = Callable[[], Store]


@pytest.fixture(params=[open_store], ids=["sqlite"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reopen]:
    """Opens the same store, closing it first where it was open."""
    opened: list[Store] = []

    def again() -> Store:
        while opened:
            opened.pop().close()
        opened.append(request.param(tmp_path / "gpuqueue.db"))
        return opened[-1]

    yield again
    while opened:
        opened.pop().close()


@pytest.fixture
def store(reopen: Reopen) -> Store:
    return reopen()


def asked(key: str) -> SubmitRequest:
    return replace(FULL_REQUEST, idempotency_key=key)


def add(store: Store, key: str = "key", of: Job | None = None) -> Job:
    added, new = store.add_job(of or job(0), asked(key))
    assert new
    return added


def add_ended(store: Store, key: str, ended_unix: int, of: Job | None = None) -> Job:
    added = add(store, key, of)
    ended = replace(added, state=JobState.SUCCEEDED, ended_unix=ended_unix)
    assert store.save_job(ended, expect=added.state)
    return ended


# History


def add_run(store: Store, **changes: Any) -> None:
    store.add_run(replace(FULL_RUN, id=0, **changes))


def test_a_run_comes_back_whole_with_an_id_of_its_own(reopen: Reopen) -> None:
    add_run(reopen())
    [run] = reopen().runs(10)
    assert run == replace(FULL_RUN, id=run.id)
    assert run.id > 0


def test_an_attempt_is_in_the_history_once_as_it_was_written_first(store: Store) -> None:
    add_run(store, peak_mib=5)
    add_run(store, peak_mib=6)
    add_run(store, attempt=3, peak_mib=7)
    assert [run.peak_mib for run in store.runs(10)] == [7, 5]


def test_runs_come_newest_first_page_by_page(store: Store) -> None:
    for attempt_number in range(1, 6):
        add_run(store, attempt=attempt_number)
    first = store.runs(2)
    assert [run.attempt for run in first] == [5, 4]
    assert [run.attempt for run in store.runs(2, before=first[-1].id)] == [3, 2]


def test_runs_are_found_by_owner_account_program_and_family(store: Store) -> None:
    add_run(store, attempt=1, uid=1, account="a", work=replace(FULL_RUN.work, program="p", family=None, model=None))
    add_run(store, attempt=2, uid=2, account="a", work=replace(FULL_RUN.work, program="q", family="llama"))
    add_run(store, attempt=3, uid=2, account="b", work=replace(FULL_RUN.work, program="p", family="llama"))

    def found(**by: Any) -> list[int]:
        return [run.attempt for run in store.runs(10, **by)]

    assert found(uid=2) == [3, 2]
    assert found(account="a") == [2, 1]
    assert found(account="a", program="p") == [1]
    assert found(account="b", family="llama") == [3]
    assert found(account="b", family="qwen") == []


def test_the_history_outlives_its_jobs_and_is_pruned_by_itself(store: Store) -> None:
    ended = add_ended(store, "old", 10)
    add_run(store, job_id=ended.id, attempt=1, ended_unix=10)
    add_run(store, job_id=ended.id, attempt=2, ended_unix=20)
    store.prune(100)
    assert store.job(ended.id) is None
    assert [run.ended_unix for run in store.runs(10)] == [20, 10]
    store.prune_runs(15)
    assert [run.ended_unix for run in store.runs(10)] == [20]


# Jobs


def test_a_job_gets_an_id_and_comes_back_whole(reopen: Reopen) -> None:
    store = reopen()
    added = add(store, of=FULL_JOB)
    assert added.id > 0
    assert added == replace(FULL_JOB, id=added.id)
    assert store.job(added.id) == added
    assert reopen().job(added.id) == added


def test_ids_grow(store: Store) -> None:
    assert add(store, "a").id < add(store, "b").id


def test_an_unknown_job_is_none(store: Store) -> None:
    assert store.job(7) is None
    assert store.request(7) is None
    assert store.attempts(7) == []


def test_the_request_comes_back_whole(reopen: Reopen) -> None:
    added, _ = reopen().add_job(FULL_JOB, FULL_REQUEST)
    assert reopen().request(added.id) == FULL_REQUEST


def test_the_same_key_of_the_same_user_makes_one_job_j5(reopen: Reopen) -> None:
    store = reopen()
    first = add(store, "key")
    moved = replace(first, state=JobState.STARTING)
    assert store.save_job(moved, expect=JobState.QUEUED)
    assert reopen().add_job(job(0, claim_mib=1), asked("key")) == (moved, False)


def test_the_same_key_of_another_user_makes_another_job(store: Store) -> None:
    first = add(store, "key", job(0, user="anna"))
    second = add(store, "key", job(0, user="ben"))
    assert first.id != second.id


def test_a_save_that_expects_the_stored_state_is_written(reopen: Reopen) -> None:
    store = reopen()
    added = add(store)
    moved = replace(added, state=JobState.STARTING, attempt=1)
    assert store.save_job(moved, expect="queued") is True
    assert store.job(added.id) == moved
    assert reopen().job(added.id) == moved


def test_a_stale_save_writes_nothing(store: Store) -> None:
    added = add(store)
    cancelled = replace(added, state=JobState.CANCELLED, ended_unix=5)
    assert store.save_job(cancelled, expect=JobState.QUEUED)
    assert store.save_job(replace(added, state=JobState.STARTING), expect=JobState.QUEUED) is False
    assert store.job(added.id) == cancelled


def test_a_save_of_an_unknown_job_is_stale(store: Store) -> None:
    assert store.save_job(job(7), expect=JobState.QUEUED) is False
    assert store.job(7) is None


@pytest.mark.parametrize("state", JobState)
def test_open_and_ended_jobs_are_told_apart_by_their_state(store: Store, state: JobState) -> None:
    added = add(store)
    moved = replace(added, state=state, ended_unix=9 if state in FINAL_STATES else None)
    assert store.save_job(moved, expect=JobState.QUEUED)
    assert store.open_jobs() == ([] if state.ended else [moved])
    assert store.ended_jobs(10) == ([moved] if state.ended else [])


def test_open_jobs_come_by_id(store: Store) -> None:
    added = [add(store, key) for key in "abc"]
    assert store.open_jobs() == added


def test_ended_jobs_come_newest_end_first_and_only_so_many(store: Store) -> None:
    early, late, middle = add_ended(store, "a", 10), add_ended(store, "b", 30), add_ended(store, "c", 20)
    tie = add_ended(store, "d", 20)
    assert store.ended_jobs(10) == [late, tie, middle, early]
    assert store.ended_jobs(2) == [late, tie]
    assert store.ended_jobs(0) == []


def test_ended_jobs_of_one_user(store: Store) -> None:
    hers = add_ended(store, "a", 10, job(0, user="anna"))
    add_ended(store, "b", 20, job(0, user="ben"))
    assert store.ended_jobs(10, "anna") == [hers]
    assert store.ended_jobs(10, "nobody") == []


# Attempts


def test_an_attempt_comes_back_whole(reopen: Reopen) -> None:
    store = reopen()
    added = add(store)
    kept = replace(FULL_ATTEMPT, job_id=added.id)
    store.save_attempt(kept)
    assert store.attempts(added.id) == [kept]
    assert reopen().attempts(added.id) == [kept]


def test_a_saved_attempt_replaces_itself(store: Store) -> None:
    first = attempt(add(store), number=1)
    second = replace(first, number=2)
    for kept in (second, first, replace(first, peak_mib=77)):
        store.save_attempt(kept)
    assert store.attempts(first.job_id) == [replace(first, peak_mib=77), second]


@pytest.mark.parametrize("phase", AttemptPhase)
def test_every_attempt_that_has_not_ended_is_held(store: Store, phase: AttemptPhase) -> None:
    kept = attempt(add(store), phase=phase)
    store.save_attempt(kept)
    assert store.held_attempts() == ([] if phase is AttemptPhase.ENDED else [kept])


def test_held_attempts_come_by_job_and_number(store: Store) -> None:
    jobs = [add(store, key) for key in "ab"]
    kept = [attempt(of, number=number) for of in jobs for number in (1, 2)]
    for one in reversed(kept):
        store.save_attempt(one)
    assert store.held_attempts() == kept


# Transactions


def test_a_transaction_that_fails_writes_nothing(reopen: Reopen) -> None:
    store = reopen()
    added = add(store)
    with pytest.raises(RuntimeError), store.transaction():
        store.save_job(replace(added, state=JobState.STARTING), expect=JobState.QUEUED)
        store.save_attempt(attempt(added))
        store.add_event("started", "gpuqueue", "job 1 starts", added.id, 5)
        raise RuntimeError
    for now in (store, reopen()):
        assert now.open_jobs() == [added]
        assert now.held_attempts() == []
        assert now.events(0, 10) == []


def test_a_transaction_sees_its_own_writes_and_commits_them_together(reopen: Reopen) -> None:
    store = reopen()
    with store.transaction():
        added = add(store)
        kept: Attempt = attempt(added)
        store.save_attempt(kept)
        assert store.open_jobs() == [added]
    store = reopen()
    assert (store.open_jobs(), store.held_attempts()) == ([added], [kept])


def test_transactions_nest_the_outer_one_decides(reopen: Reopen) -> None:
    store = reopen()
    with pytest.raises(RuntimeError), store.transaction():
        with store.transaction():
            add(store)
        raise RuntimeError
    assert reopen().open_jobs() == []


def test_an_inner_transaction_that_fails_takes_only_its_own_writes(reopen: Reopen) -> None:
    store = reopen()
    with store.transaction():
        first = add(store, "a")
        with pytest.raises(RuntimeError), store.transaction():
            add(store, "b")
            raise RuntimeError
        last = add(store, "c")
    assert reopen().open_jobs() == [first, last]


def test_what_waits_for_the_commit_is_done_after_it_or_never(store: Store) -> None:
    done: list[str] = []
    with store.transaction():
        store.after_commit(lambda: done.append("outer"))
        with pytest.raises(RuntimeError), store.transaction():
            store.after_commit(lambda: done.append("inner, undone"))
            raise RuntimeError
        with store.transaction():
            store.after_commit(lambda: done.append("inner"))
        assert done == []
    assert done == ["outer", "inner"]
    with pytest.raises(RuntimeError), store.transaction():
        store.after_commit(lambda: done.append("undone"))
        raise RuntimeError
    store.after_commit(lambda: done.append("at once"))
    assert done == ["outer", "inner", "at once"]


def test_the_store_goes_on_after_a_transaction_that_failed(store: Store) -> None:
    with pytest.raises(RuntimeError), store.transaction():
        raise RuntimeError
    added = add(store)
    assert store.job(added.id) == added


# What admins set, what fair-share remembers, the clock


def test_quotas_are_set_changed_and_unset(reopen: Reopen) -> None:
    store = reopen()
    assert store.quotas() == {}
    store.set_quota("anna", Nominal(train_mib=20480))
    store.set_quota("ben", Nominal(light_mib=0))
    store.set_quota("anna", Nominal(train_mib=10240, light_mib=1024))
    assert reopen().quotas() == {"anna": Nominal(train_mib=10240, light_mib=1024), "ben": Nominal(light_mib=0)}
    store = reopen()
    store.set_quota("anna", None)
    store.set_quota("nobody", None)
    assert store.quotas() == {"ben": Nominal(light_mib=0)}


def test_usage_is_kept_by_account_others_stay_as_they_were(reopen: Reopen) -> None:
    store = reopen()
    assert store.usage() == {}
    store.set_usage({})
    store.set_usage({"anna": (2**40, 10), "ben": (5, 10)})
    store.set_usage({"ben": (7, 20)})
    assert reopen().usage() == {"anna": (2**40, 10), "ben": (7, 20)}


def test_cards_are_drained_and_resumed(reopen: Reopen) -> None:
    store = reopen()
    assert store.drained() == {}
    store.set_drained("GPU-a", "fan is loud")
    store.set_drained("GPU-a", "fan is \udcff broken")
    assert reopen().drained() == {"GPU-a": "fan is \\udcff broken"}
    store = reopen()
    store.set_drained("GPU-a", None)
    store.set_drained("GPU-b", None)
    assert store.drained() == {}


def test_the_engine_clock_starts_at_0_and_is_kept(reopen: Reopen) -> None:
    store = reopen()
    assert store.engine_second() == 0
    store.keep_engine_second(5)
    store.keep_engine_second(86_400)
    assert reopen().engine_second() == 86_400


# Events


def test_events_come_oldest_first_after_an_id(reopen: Reopen) -> None:
    store = reopen()
    first = store.add_event("quota", "root", "anna: train 20.0 GiB", None, 100)
    second = store.add_event("started", "gpuqueue", "job 1 starts \udcff", 1, 101)
    third = store.add_event("ended", "gpuqueue", "job 1 finished", 1, 102)
    assert (first.at, first.kind, first.job_id, first.actor, first.text) == (
        100,
        "quota",
        None,
        "root",
        "anna: train 20.0 GiB",
    )
    assert second.text == "job 1 starts \\udcff"
    assert first.id < second.id < third.id
    store = reopen()
    assert store.events(0, 10) == [first, second, third]
    assert store.events(0, 2) == [first, second]
    assert store.events(first.id, 10) == [second, third]
    assert store.events(third.id, 10) == []
    assert store.events(-1, 2) == [second, third]
    assert store.events(0, 10, job_id=1) == [second, third]
    assert store.events(-1, 1, job_id=1) == [third]


# Retention and copies


def test_prune_forgets_old_ended_jobs_and_names_their_run_directories(reopen: Reopen) -> None:
    store = reopen()
    old, fresh, still_open = add_ended(store, "a", 99), add_ended(store, "b", 100), add(store, "c")
    for of, number in ((old, 1), (old, 2), (fresh, 1), (still_open, 1)):
        store.save_attempt(attempt(of, number=number, phase=AttemptPhase.ENDED))
    assert list(store.prune(100)) == [(old.id, 1), (old.id, 2)]
    store = reopen()
    assert store.job(old.id) is None
    assert store.request(old.id) is None
    assert store.attempts(old.id) == []
    assert store.ended_jobs(10) == [fresh]
    assert store.open_jobs() == [still_open]
    assert store.request(fresh.id) is not None
    assert len(store.attempts(fresh.id)) == 1


def test_prune_keeps_what_still_holds_a_lease_z3(store: Store) -> None:
    old = add_ended(store, "a", 1)
    stuck = attempt(old, phase=AttemptPhase.RELEASING)
    store.save_attempt(stuck)
    assert list(store.prune(100)) == []
    assert store.job(old.id) == old
    store.save_attempt(replace(stuck, phase=AttemptPhase.ENDED))
    assert list(store.prune(100)) == [(old.id, 1)]


def test_the_id_of_a_forgotten_job_is_never_used_again(reopen: Reopen) -> None:
    store = reopen()
    forgotten = add_ended(store, "a", 1)
    store.prune(100)
    assert add(reopen(), "a").id > forgotten.id


def test_prune_forgets_old_events_but_not_those_of_jobs_it_keeps(store: Store) -> None:
    old, kept = add_ended(store, "a", 1), add(store, "b")
    store.add_event("ended", "gpuqueue", "old", old.id, 1)
    store.add_event("quota", "root", "old", None, 1)
    expected = [
        store.add_event("started", "gpuqueue", "kept", kept.id, 1),
        store.add_event("quota", "root", "new", None, 100),
    ]
    store.prune(100)
    assert store.events(0, 10) == expected


def test_a_backup_is_a_store_of_its_own(reopen: Reopen, tmp_path: Path) -> None:
    store = reopen()
    added = add(store, of=FULL_JOB)
    copy = tmp_path / "copies"
    copy.mkdir()
    store.backup(str(copy / "gpuqueue.db"))
    later = add(store, "later")
    other = open_store(copy / "gpuqueue.db")
    try:
        assert other.job(added.id) == added
        assert other.job(later.id) is None
    finally:
        other.close()
    assert store.job(later.id) == later


def test_several_threads_may_use_it(store: Store, tmp_path: Path) -> None:
    def work(thread: int) -> None:
        for number in range(20):
            with store.transaction():
                added = add(store, f"{thread}-{number}")
                store.save_attempt(attempt(added))
        store.backup(str(tmp_path / f"copy-{thread}.db"))

    with ThreadPoolExecutor(4) as pool:
        for finished in [pool.submit(work, thread) for thread in range(4)]:
            finished.result()
    assert len(store.open_jobs()) == len(store.held_attempts()) == 80
