"""What the kernel's count of kills makes of a job's end, under a limit of its own and without one."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from gpuqueue.engine.autopsy import examine
from gpuqueue.engine.engine import Engine
from gpuqueue.engine.submit import submit
from gpuqueue.wire.jobs import SubmitRequest
from gpuqueue.wire.rundir import EXIT
from tests.engine.test_ended_unseen import ME, tick, until_exists


@pytest.mark.parametrize("limits_memory", [True, False])
def test_a_limit_is_named_where_it_is_enforced(engine: Engine, open_path: Path, limits_memory: bool) -> None:
    tick(engine)
    request = SubmitRequest(
        idempotency_key="one",
        vram_mib=1024,
        mem_mib=200,
        command=["sh", "-c", "kill -KILL $$"],
        cwd=str(open_path),
        env={"PATH": os.environ["PATH"]},
    )
    job, _, _ = submit(engine, ME, request)
    tick(engine)
    until_exists(engine.settings.state_dir / "runs" / f"{job.id}.1" / EXIT)
    (attempt,) = engine.store.attempts(job.id)
    engine.backend.limits_memory = limits_memory  # as the node's controllers allow, which this machine may lack
    probe = replace(engine.backend.probe(job.id, 1), oom_kills=2)
    found = examine(engine, job, attempt, probe, engine.reading, engine.backend.uses(), None)
    assert found.diagnosis is not None
    assert found.diagnosis.cause == "host_out_of_memory"
    assert "killed 2 of the job's processes" in found.diagnosis.advice
    assert ("(its --mem is 200 MiB)" in found.diagnosis.advice) is limits_memory
