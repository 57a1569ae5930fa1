"""A full disk: an error that says so, nothing half written, and no restart needed when there is space again."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from gpuqueue.store.open import open_store
from gpuqueue.wire.errors import ErrorCode, GpuqueueError
from gpuqueue.wire.jobs import SubmitRequest
from gpuqueue.wire.states import JobState
from tests.builders import attempt, job
from tests.store.full import FULL_REQUEST

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system, which needs root"),
]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "none", str(tmp_path)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"this root may not mount: {mounted.stderr.strip()}")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    return filler


def asked(key: str, env_kib: int = 0) -> SubmitRequest:
    return replace(FULL_REQUEST, idempotency_key=key, env={"BIG": "x" * env_kib * 1024})


def refuses_for_space(caught: pytest.ExceptionInfo[GpuqueueError]) -> bool:
    return caught.value.code is ErrorCode.UNAVAILABLE and "is full; nothing was written" in caught.value.message


def test_a_write_that_does_not_fit_fails_whole_and_works_when_there_is_space(small_disk: Path) -> None:
    store = open_store(small_disk / "gpuqueue.db")
    first, _ = store.add_job(job(0), asked("first"))
    filler = fill(small_disk)
    for _ in range(3):
        with pytest.raises(GpuqueueError) as caught:
            store.add_job(job(0), asked("second", env_kib=64))
        assert refuses_for_space(caught)
        assert store.open_jobs() == [first]  # reading goes on
    filler.unlink()
    second, new = store.add_job(job(0), asked("second", env_kib=64))
    assert new
    store.close()
    store = open_store(small_disk / "gpuqueue.db")
    assert store.open_jobs() == [first, second]
    store.close()


@pytest.mark.parametrize("swallow", [False, True], ids=["stops at the error", "goes on after it"])
def test_a_transaction_in_which_a_write_did_not_fit_writes_nothing(small_disk: Path, swallow: bool) -> None:
    """With more in it than SQLite keeps in memory, so that it rolls back by itself in the middle; a caller
    that goes on regardless must not commit the rest on its own."""
    store = open_store(small_disk / "gpuqueue.db")
    first, _ = store.add_job(job(0), asked("first"))
    failures = 0
    with pytest.raises(GpuqueueError) as caught, store.transaction():
        store.save_job(replace(first, state=JobState.STARTING), expect=JobState.QUEUED)
        for number in range(20):
            try:
                with store.transaction():
                    store.add_job(job(0), asked(str(number), env_kib=1024))
            except GpuqueueError:
                failures += 1
                if not swallow:
                    raise
        with suppress(GpuqueueError):
            store.save_attempt(attempt(first))
    assert refuses_for_space(caught)
    assert failures > 0
    assert store.open_jobs() == [first]
    assert store.held_attempts() == []
    store.close()
    store = open_store(small_disk / "gpuqueue.db")
    assert store.open_jobs() == [first]
    store.close()


def test_a_backup_that_does_not_fit_leaves_nothing_behind(small_disk: Path) -> None:
    store = open_store(small_disk / "gpuqueue.db")
    store.add_job(job(0), asked("first", env_kib=1024))
    fill(small_disk)
    with pytest.raises(GpuqueueError) as caught:
        store.backup(str(small_disk / "copy.db"))
    assert refuses_for_space(caught)
    store.close()
    assert not list(small_disk.glob("copy*"))


def test_a_start_on_a_full_disk_is_refused_and_can_be_repeated(small_disk: Path) -> None:
    filler = fill(small_disk)
    with pytest.raises(GpuqueueError) as caught:
        open_store(small_disk / "gpuqueue.db")
    assert caught.value.code is ErrorCode.UNAVAILABLE
    filler.unlink()
    store = open_store(small_disk / "gpuqueue.db")
    store.add_job(job(0), asked("first"))
    store.close()
