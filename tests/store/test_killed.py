"""A writer that is killed at any moment: the database is whole, and what was accepted is there."""

import multiprocessing
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from gpuqueue.core.model import AttemptPhase
from gpuqueue.store.open import open_store
from gpuqueue.store.schema import MIGRATIONS
from gpuqueue.wire.states import JobState
from tests.builders import attempt, job
from tests.store.full import FULL_REQUEST
from tests.store.test_schema import NEXT_MIGRATION, RELEASED, migrations_with, restored, schema_of

ROUNDS = 20
FORK = multiprocessing.get_context("fork")  # the writer need not import everything anew


def killed_after(seconds: float, work: Callable[[Connection], None], *, at_work: bool = False) -> list[int]:
    """What `work` reported, in a process of its own, before SIGKILL came; `at_work` counts from its first report,
    however slow the machine is to get there."""
    reports, pipe = FORK.Pipe(duplex=False)
    writer = FORK.Process(target=work, args=(pipe,))
    writer.start()
    pipe.close()
    if at_work:
        assert reports.poll(60)
    writer.join(seconds)
    writer.kill()
    writer.join()
    told = []
    while reports.poll():
        try:
            told.append(reports.recv())
        except EOFError:
            break
    reports.close()
    return told


def write_for_ever(path: Path, round_: int, pipe: Connection) -> None:
    """Submits a job, reports it, and starts or ends it with its attempt in one transaction."""
    store = open_store(path)
    number = 0
    while True:
        number += 1
        added, _ = store.add_job(job(0), replace(FULL_REQUEST, idempotency_key=f"{round_}-{number}"))
        pipe.send(added.id)
        with store.transaction():
            started = replace(added, state=JobState.STARTING, attempt=1)
            store.save_attempt(attempt(started, phase=AttemptPhase.STARTING))
            store.save_job(started, expect=JobState.QUEUED)
        if number % 3 == 0:
            with store.transaction():
                store.save_job(replace(started, state=JobState.SUCCEEDED, ended_unix=number), expect=JobState.STARTING)
                store.save_attempt(attempt(started, phase=AttemptPhase.ENDED))


def open_and_close(path: Path, migrations: Path, _: Connection) -> None:
    open_store(path, migrations).close()


def test_a_killed_writer_loses_nothing_and_leaves_nothing_half_done(tmp_path: Path) -> None:
    path = tmp_path / "gpuqueue.db"
    chance = random.Random(2)
    accepted: set[int] = set()
    for round_ in range(ROUNDS):
        accepted |= set(
            killed_after(0.02 + chance.random() * 0.15, partial(write_for_ever, path, round_), at_work=True)
        )
        store = open_store(path)  # checks integrity
        open_jobs, ended_jobs = store.open_jobs(), store.ended_jobs(100_000)
        assert accepted <= {one.id for one in open_jobs + ended_jobs}
        held = {one.job_id for one in store.held_attempts()}
        assert held == {one.id for one in open_jobs if one.state is JobState.STARTING}
        assert all(store.request(one.id) for one in open_jobs[-3:])
        store.close()
    assert len(accepted) >= ROUNDS  # it did write


def test_a_start_that_is_killed_while_it_creates_can_be_repeated(tmp_path: Path) -> None:
    chance = random.Random(3)
    for round_ in range(ROUNDS):
        state = tmp_path / str(round_)
        state.mkdir()
        killed_after(chance.random() * 0.05, partial(open_and_close, state / "gpuqueue.db", MIGRATIONS))
        store = open_store(state / "gpuqueue.db")
        assert store.open_jobs() == []
        store.close()


@pytest.mark.parametrize("dump", RELEASED[:1], ids=["0001"])
def test_a_migration_that_is_killed_is_done_or_not_done(tmp_path: Path, dump: Path) -> None:
    migrations = migrations_with(tmp_path, NEXT_MIGRATION)
    chance = random.Random(4)
    for round_ in range(ROUNDS):
        state = tmp_path / str(round_)
        state.mkdir()
        path = restored(dump, state / "gpuqueue.db")
        killed_after(chance.random() * 0.06, partial(open_and_close, path, migrations))
        migrated = "note" in schema_of(path)["quota"]
        store = open_store(path, migrations if migrated else MIGRATIONS)
        assert store.job(1) is not None
        store.close()
