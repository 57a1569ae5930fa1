"""An attempt that starts and ends between two looks: while the daemon was dead, or just faster than it."""

import os
import pwd
import time
from pathlib import Path

from gpuqueue.engine.callers import Caller
from gpuqueue.engine.engine import Engine
from gpuqueue.engine.submit import submit
from gpuqueue.engine.tick import cycle
from gpuqueue.wire.jobs import SubmitRequest
from gpuqueue.wire.rundir import EXIT, SPEC, Spec, read_record
from gpuqueue.wire.states import JobState

ME = Caller(uid=os.getuid(), gid=os.getgid(), user=pwd.getpwuid(os.getuid()).pw_name, groups=(), admin=True)
DEADLINE_S = 30


def tick(engine: Engine) -> None:
    cycle(engine, engine.cards.read(), time.monotonic())


def until_exists(file: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not file.exists():
        assert time.monotonic() < deadline, f"{file} does not come"
        time.sleep(0.02)


def test_an_attempt_that_nobody_saw_alive_has_started_all_the_same(engine: Engine, open_path: Path) -> None:
    """R2: what it saved since its first start is its own, and what was there before is not, for every attempt."""
    tick(engine)
    request = SubmitRequest(
        idempotency_key="one",
        vram_mib=1024,
        command=["sh", "-c", "exit 3"],
        cwd=str(open_path),
        env={"PATH": os.environ["PATH"]},
        checkpoint_dir="out",
    )
    before = int(time.time())
    job, _, _ = submit(engine, ME, request)
    runs = engine.settings.state_dir / "runs"
    tick(engine)
    until_exists(runs / f"{job.id}.1" / EXIT)
    tick(engine)
    failed = engine.store.job(job.id)
    assert failed is not None
    assert (failed.state, failed.exit_status) == (JobState.BACKOFF, 3)
    assert failed.started_unix is not None
    assert before <= failed.started_unix <= time.time()

    second = runs / f"{job.id}.2" / EXIT
    deadline = time.monotonic() + DEADLINE_S
    while not second.exists():
        assert time.monotonic() < deadline, "there is no second attempt"
        tick(engine)
        time.sleep(0.1)
    specs = [read_record(runs / f"{job.id}.{number}" / SPEC, Spec) for number in (1, 2)]
    assert [spec and spec.checkpoint_since for spec in specs] == [failed.started_unix] * 2
