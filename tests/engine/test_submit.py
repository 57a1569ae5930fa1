"""Whose jobs a daemon takes (A3)."""

from pathlib import Path

import pytest

from gpuqueue.config.settings import Settings
from gpuqueue.daemon.serve import build_engine
from gpuqueue.engine.callers import Caller
from gpuqueue.engine.submit import submit
from gpuqueue.gpu.simulated import SimulatedCards
from gpuqueue.store.open import open_store
from gpuqueue.wire.errors import ErrorCode, GpuqueueError
from gpuqueue.wire.jobs import SubmitRequest

ROOT = Caller(uid=0, gid=0, user="root", groups=(0,), admin=True)
ANN = Caller(uid=4711, gid=4711, user="ann", groups=(), admin=True)


def test_a_daemon_without_root_takes_jobs_of_its_own_login_alone(tmp_path: Path) -> None:
    store = open_store(tmp_path / "gpuqueue.db")
    engine = build_engine(Settings(state_dir=tmp_path), store, SimulatedCards(tmp_path / "sim", (32607,)))
    engine.daemon_uid = ANN.uid
    request = SubmitRequest(idempotency_key="k", vram_mib=0, command=["true"], cwd="/", env={})
    with pytest.raises(GpuqueueError, match="4711") as refused:
        submit(engine, ROOT, request)
    assert refused.value.code is ErrorCode.NOT_PERMITTED
    assert store.open_jobs() == []
    job, new, _ = submit(engine, ANN, request)
    assert (job.user, new) == ("ann", True)
    store.close()
