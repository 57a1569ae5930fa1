"""What a tick costs: generous bounds that still tell a mistake of kind from a slow machine."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gpuqueue.core.model import AttemptPhase
from gpuqueue.store.open import open_store
from gpuqueue.wire.states import JobState
from tests.builders import attempt, job
from tests.store.full import FULL_JOB, FULL_REQUEST


def best_of(times: int, work: Callable[[], object]) -> float:
    """Seconds of the fastest run."""
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return min(taken)


def test_a_tick_over_40_active_jobs_reads_in_milliseconds(tmp_path: Path) -> None:
    store = open_store(tmp_path / "gpuqueue.db")
    with store.transaction():
        for number in range(40):
            request = replace(FULL_REQUEST, idempotency_key=f"active {number}")
            added, _ = store.add_job(job(0, state=JobState.RUNNING), request)
            store.save_attempt(attempt(added, phase=AttemptPhase.RUNNING))
        for number in range(2000):  # history is not read
            ended = replace(FULL_JOB, state=JobState.SUCCEEDED, stop=None, ended_unix=number)
            store.add_job(ended, replace(FULL_REQUEST, idempotency_key=f"ended {number}"))

    def read() -> None:
        assert len(store.open_jobs()) == len(store.held_attempts()) == 40

    def write() -> None:
        with store.transaction():
            for one in store.open_jobs():
                assert store.save_job(replace(one, peak_mib=(one.peak_mib or 0) + 1), expect=one.state)

    assert best_of(10, read) < 0.015
    assert best_of(5, write) < 0.060
    assert best_of(5, lambda: store.ended_jobs(20)) < 0.015
    store.close()
