"""R5: a start that another try would only see fail again, and one that the machine's coming up may still cure."""

import os
import pwd
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gpuqueue.core.model import Job
from gpuqueue.core.reasons import sentence
from gpuqueue.engine.callers import Caller, nameless
from gpuqueue.engine.engine import Engine
from gpuqueue.engine.submit import submit
from gpuqueue.engine.tick import cycle
from gpuqueue.wire.jobs import SubmitRequest
from gpuqueue.wire.procfs import booted_unix
from gpuqueue.wire.states import JobState

DEADLINE_S = 30
MY_NAME = pwd.getpwuid(os.getuid()).pw_name
NOBODYS_UID = 3_999_999_999  # above what any user database hands out


def caller(uid: int, user: str) -> Caller:
    return Caller(uid=uid, gid=os.getgid(), user=user, groups=(), admin=False)


def submitted(engine: Engine, who: Caller, cwd: Path, command: str = "true") -> Job:
    cycle(engine, engine.cards.read(), time.monotonic())
    request = SubmitRequest(
        idempotency_key="one", vram_mib=1024, command=[command], cwd=str(cwd), env={"PATH": os.environ["PATH"]}
    )
    return submit(engine, who, request)[0]


def ended(engine: Engine, job: Job) -> Job:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        cycle(engine, engine.cards.read(), time.monotonic())
        now = engine.store.job(job.id)
        assert now is not None
        if now.state.ended:
            return now
        assert time.monotonic() < deadline, f"job {job.id} is still {now.state}: {now.reason}"
        time.sleep(0.05)


def said(job: Job) -> str:
    assert job.reason is not None
    return sentence(job.reason)


def test_a_command_that_is_not_there_ends_the_job_at_once(engine: Engine, open_path: Path) -> None:
    end = ended(engine, submitted(engine, caller(os.getuid(), MY_NAME), open_path, "/opt/gone/bin/train"))
    assert (end.state, end.attempt) == (JobState.FAILED, 1)
    assert said(end) == "could not start: /opt/gone/bin/train: no such command"


def test_a_job_from_before_this_boot_is_tried_again(engine: Engine, open_path: Path) -> None:
    """What its command lies on may be mounted later than the daemon starts."""
    job = submitted(engine, caller(os.getuid(), MY_NAME), open_path, "/opt/gone/bin/train")
    assert engine.store.save_job(replace(job, submitted_unix=booted_unix() - 60), expect=job.state)
    end = ended(engine, job)
    assert (end.state, end.attempt) == (JobState.STOPPED, 2)
    assert "failed 2 times in a row" in said(end)


def test_a_directory_that_is_not_there_is_tried_again(engine: Engine, open_path: Path) -> None:
    """An automounter whose server is down says the same."""
    gone = open_path / "gone"
    gone.mkdir()
    job = submitted(engine, caller(os.getuid(), MY_NAME), gone)
    gone.rmdir()
    end = ended(engine, job)
    assert (end.state, end.attempt) == (JobState.STOPPED, 2)
    assert f"cannot change directory to {gone}: No such file or directory" in said(end)


def test_a_user_whose_account_is_not_there_is_tried_again(engine: Engine, open_path: Path) -> None:
    """As where the directory service is down."""
    end = ended(engine, submitted(engine, caller(NOBODYS_UID, "gone-away"), open_path))
    assert (end.state, end.attempt) == (JobState.STOPPED, 2)
    assert f"last: could not start: its user gone-away (uid {NOBODYS_UID}) has no account here" in said(end)


def test_a_name_that_has_another_uid_by_now_runs_nothing(engine: Engine, open_path: Path) -> None:
    """J1: nobody's job runs as somebody else."""
    other = next(entry for entry in pwd.getpwall() if entry.pw_uid != os.geteuid())
    end = ended(engine, submitted(engine, caller(NOBODYS_UID, other.pw_name), open_path))
    assert end.state is JobState.STOPPED
    assert f"could not start: {other.pw_name} was uid {NOBODYS_UID} when it was submitted" in said(end)


@pytest.mark.root
def test_a_user_that_never_had_an_account_may_run(engine: Engine, open_path: Path) -> None:
    """As in a container that is started under a bare uid."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it runs a job as another user")
    end = ended(engine, submitted(engine, caller(NOBODYS_UID, nameless(NOBODYS_UID)), open_path))
    assert (end.state, said(end)) == (JobState.SUCCEEDED, "finished")
