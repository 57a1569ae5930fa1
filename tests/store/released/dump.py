"""Prints a database of the present schema as SQL, with what tests/store/test_schema.py expects in it:

    python -m tests.store.released.dump > tests/store/released/NUMBER.sql

Once a schema is released, its dump is never made again: it stands for the databases out there.
"""

import sqlite3
import sys
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from gpuqueue.core.model import AttemptPhase
from gpuqueue.core.policy import Nominal
from gpuqueue.store.open import open_store
from gpuqueue.wire.states import JobState
from tests.store.full import FULL_ATTEMPT, FULL_JOB, FULL_REQUEST, FULL_RUN


def fill(path: Path) -> None:
    store = open_store(path)
    job, _ = store.add_job(FULL_JOB, FULL_REQUEST)
    store.save_attempt(replace(FULL_ATTEMPT, job_id=job.id))
    for key, ended_unix in (("ended", 1_700_000_600), ("forgotten", 5)):
        ended = replace(FULL_JOB, state=JobState.SUCCEEDED, stop=None, ended_unix=ended_unix)
        added, _ = store.add_job(ended, replace(FULL_REQUEST, idempotency_key=key))
        store.save_attempt(replace(FULL_ATTEMPT, job_id=added.id, phase=AttemptPhase.ENDED))
    store.prune(6)
    store.add_event("quota", "root", "anna: train 20.0 GiB", None, 1_700_000_000)
    store.add_event("started", "gpuqueue", "job 1 starts", job.id, 1_700_000_010)
    store.set_quota("anna", Nominal(train_mib=20480))
    store.set_quota("ben", Nominal(light_mib=0))
    store.set_usage({"anna": (2**40, 77)})
    store.set_drained("GPU-a", "its fan is loud")
    store.keep_engine_second(86_400)
    store.add_run(replace(FULL_RUN, job_id=job.id))
    store.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "gpuqueue.db"
        fill(path)
        with closing(sqlite3.connect(path)) as connection:
            sys.stdout.write("\n".join(connection.iterdump()) + "\n")
