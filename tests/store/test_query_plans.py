"""What a tick asks again and again finds its rows through an index: a long history makes no tick slower."""

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import event

from gpuqueue.store.open import open_store
from gpuqueue.store.sqlite import SqliteStore
from gpuqueue.wire.states import JobState
from tests.builders import attempt, job
from tests.store.full import FULL_REQUEST

Ask = Callable[[SqliteStore], object]
TICK: dict[str, Ask] = {
    "open jobs": lambda store: store.open_jobs(),
    "held attempts": lambda store: store.held_attempts(),
    "a job": lambda store: store.job(1),
    "its attempts": lambda store: store.attempts(1),
    "its request": lambda store: store.request(1),
    "save it": lambda store: store.save_job(replace(job(1), peak_mib=1), expect=JobState.QUEUED),
    "save an attempt": lambda store: store.save_attempt(attempt(job(1))),
    "the jobs that ended last": lambda store: store.ended_jobs(20),
    "a retried submit": lambda store: store.add_job(job(0), FULL_REQUEST),
    "new events": lambda store: store.events(after=5, limit=100),
    "a job's events": lambda store: store.events(after=0, limit=100, job_id=1),
    "runs of a program": lambda store: store.runs(20, uid=1000, program="p"),
}


@pytest.mark.parametrize("asked", TICK)
def test_no_statement_of_a_tick_reads_a_table_from_end_to_end(tmp_path: Path, asked: str) -> None:
    store = open_store(tmp_path / "gpuqueue.db")
    store.add_job(job(0), FULL_REQUEST)
    said: list[str] = []

    @event.listens_for(store._engine, "checkout")
    def _listen(connection: sqlite3.Connection, *_: object) -> None:
        connection.set_trace_callback(said.append)

    TICK[asked](store)
    store.close()
    statements = [line for line in said if line.split()[0] in ("SELECT", "INSERT", "UPDATE", "DELETE")]
    assert statements
    with sqlite3.connect(tmp_path / "gpuqueue.db") as database:
        steps = [row[3] for line in statements for row in database.execute(f"EXPLAIN QUERY PLAN {line}")]
    assert [step for step in steps if step.startswith("SCAN") and "INDEX" not in step] == []
