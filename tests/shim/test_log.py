"""Contract 5 and 10, J3: the log is the job's own file, readable at once, capped, and a full disk kills nobody."""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuqueue.backends.local import LocalBackend
from gpuqueue.wire.errors import ErrorCode, GpuqueueError
from tests.shim.harness import (
    a_spec,
    ended,
    eventually,
    log,
    log_file,
    log_has,
    order,
    run,
    run_dir,
    running,
    stop_everything,
)

MIB = 1024 * 1024
BUFFERED = {"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": ""}


def read_whole(backend: LocalBackend, limit: int = 65536) -> bytes:
    """As a client does: from the start, always on from where the last bytes ended."""
    whole, offset, size = b"", 0, 1
    while offset < size:
        data, first, size = backend.read_log(1, 1, offset, limit)
        assert first >= offset
        assert len(data) <= limit
        assert data or first >= size
        whole += data
        offset = first + len(data)
    return whole


def test_output_is_there_at_once(backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(cwd, sys.executable, "-c", "import time; print('now'); time.sleep(60)")
    backend.start(spec)
    running(backend, spec)
    log_has(backend, spec, "now", within_s=2)


def test_5_killing_the_shim_breaks_no_pipe(session_backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(cwd, "sh", "-c", "echo first; while [ ! -e go ]; do sleep 0.02; done; echo last")
    session_backend.start(spec)
    alive = running(session_backend, spec)
    log_has(session_backend, spec, "first")
    os.kill(alive.shim.pid, 9)
    (cwd / "go").touch()
    log_has(session_backend, spec, "last")
    assert ended(session_backend, spec).exit_status == 0


def test_sentences_of_the_daemon_are_whole_lines(backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(cwd, "sh", "-c", "printf 'step 1'; while [ ! -e go ]; do sleep 0.02; done")
    backend.start(spec)
    log_has(backend, spec, "step 1")
    backend.say(1, 1, "idle for 15 min;\nstopped at 14:30 unless it works")
    backend.say(1, 1, "ünï ✓")
    log_has(backend, spec, "ünï")
    (cwd / "go").touch()
    ended(backend, spec)
    assert log(backend, spec) == "step 1\ngq: idle for 15 min; stopped at 14:30 unless it works\ngq: ünï ✓\n"


def test_reading_goes_on_from_any_place(backend: LocalBackend, cwd: Path) -> None:
    run(backend, a_spec(cwd, "seq", "1", "2000"))
    whole = "".join(f"{n}\n" for n in range(1, 2001)).encode()
    assert read_whole(backend, limit=1000) == whole
    assert backend.read_log(1, 1, 100, 10) == (whole[100:110], 100, len(whole))
    assert backend.read_log(1, 1, len(whole), 10) == (b"", len(whole), len(whole))
    assert backend.read_log(1, 1, len(whole) + 5, 10) == (b"", len(whole), len(whole))
    assert backend.read_log(1, 1, -10, 10) == (whole[-10:], len(whole) - 10, len(whole))
    assert backend.read_log(1, 1, -10 * len(whole), 5) == (whole[:5], 0, len(whole))


def test_a_log_that_is_not_there_is_empty(backend: LocalBackend, cwd: Path) -> None:
    assert backend.read_log(7, 1, 0, 100) == (b"", 0, 0)


def test_10_a_print_loop_stays_under_its_cap_and_keeps_both_ends(backend: LocalBackend, cwd: Path) -> None:
    cap = 8 * MIB
    code = (
        "import os, sys\n"
        "for n in range(600_000): print(f'line {n:07} ' + 'x' * 87)\n"
        "print('the end')\n"
        "sys.stdout.flush()\n"
        "open('printed', 'w').close()\n"
        "import time\n"
        "while not os.path.exists('go'): time.sleep(0.05)\n"
    )
    spec = a_spec(
        cwd, sys.executable, "-c", code, log_cap_bytes=cap, env={"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": ""}
    )
    backend.start(spec)
    file = log_file(backend, spec)
    eventually(lambda: (cwd / "printed").exists(), within_s=60)
    eventually(lambda: file.stat().st_blocks * 512 <= cap)
    (cwd / "go").touch()
    ended(backend, spec)
    assert file.stat().st_size > 6 * cap
    assert file.stat().st_blocks * 512 <= cap
    whole = read_whole(backend)
    lines = whole.decode().splitlines()
    assert lines[:2] == ["line 0000000 " + "x" * 87, "line 0000001 " + "x" * 87]
    assert lines[-1] == "the end"
    assert cap // 4 <= len(whole) <= cap
    cuts = [line for line in lines if "gq: [cut here" in line]
    assert len(cuts) == 1
    assert b"\0" not in whole
    # The line is the same whichever way one comes to it.
    position = whole.index(cuts[0].encode())
    assert read_whole(backend, limit=7919) == whole
    assert backend.read_log(1, 1, position + 4096, 60)[0].startswith(b"gq: [cut here")


# -- what a user may do to it


def test_what_is_not_the_owners_plain_file_is_not_read(backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(cwd, "echo", "mine")
    run(backend, spec)
    file = log_file(backend, spec)
    tricks: list[Callable[[], None]] = [
        lambda: file.symlink_to("/etc/passwd"),
        lambda: os.mkfifo(file),
        lambda: file.mkdir(),
    ]
    for make in tricks:
        file.unlink()
        make()
        with pytest.raises(GpuqueueError) as refused:
            backend.read_log(1, 1, 0, 100)
        assert refused.value.code is ErrorCode.NOT_PERMITTED
        if file.is_dir():
            file.rmdir()
            file.touch()


def test_a_log_that_its_owner_deletes_or_empties_harms_nobody(backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(cwd, "sh", "-c", "echo one; while [ ! -e go ]; do sleep 0.02; done; echo two")
    backend.start(spec)
    log_has(backend, spec, "one")
    os.truncate(log_file(backend, spec), 0)
    backend.say(1, 1, "still here")
    log_has(backend, spec, "still here")
    log_file(backend, spec).unlink()
    (cwd / "go").touch()
    assert ended(backend, spec).exit_status == 0
    assert backend.read_log(1, 1, 0, 100) == (b"", 0, 0)


# -- a full disk


@pytest.fixture
def small_disk(place: Path) -> Iterator[Path]:
    disk = place / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m,mode=711", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path, until: threading.Event) -> None:
    """Takes every byte as soon as it is free, like a checkpoint that does not fit."""
    with (disk / "filler").open("ab", buffering=0) as file:
        while not until.is_set():
            try:
                file.write(b"\1" * 4096)
            except OSError:
                time.sleep(0.01)


@pytest.mark.root
def test_10_a_full_disk_kills_neither_job_nor_shim(small_disk: Path, cwd: Path) -> None:
    backend = LocalBackend(small_disk / "state")
    (small_disk / "state").chmod(0o711)
    code = "import time\nfor n in range(4000):\n    print(f'line {n:07} ' + 'x' * 2000)\n    time.sleep(0.001)\n"
    spec = a_spec(cwd, sys.executable, "-c", code)
    backend.start(spec)
    running(backend, spec)
    log_has(backend, spec, "line")
    done = threading.Event()
    filler = threading.Thread(target=fill, args=(small_disk, done))
    filler.start()
    try:
        eventually(lambda: shutil.disk_usage(small_disk).free == 0)
        backend.say(1, 1, "said on a full disk")
        probe = ended(backend, spec, within_s=60)
    finally:
        done.set()
        filler.join()
    assert (probe.exit_status, probe.lost) == (0, False)
    assert "line 0003999" in log(backend, spec)
    stop_everything(backend)


@pytest.mark.root
def test_a_start_on_a_full_disk_is_refused_in_words(small_disk: Path, cwd: Path) -> None:
    backend = LocalBackend(small_disk / "state")
    with (small_disk / "filler").open("wb", buffering=0) as file, pytest.raises(OSError):
        while True:
            file.write(b"\1" * 65536)
    spec = a_spec(cwd, "true", script="#" * 100_000)
    with pytest.raises(GpuqueueError) as refused:
        backend.start(spec)
    assert refused.value.code is ErrorCode.UNAVAILABLE
    assert "No space left on device" in refused.value.message
    (small_disk / "filler").unlink()
    assert run(backend, spec).exit_status == 0
    assert run_dir(backend, spec).is_dir()
    backend.stop(1, 1, order())
