"""Scenario 25, code and log surprises (J1, J3): the text that was submitted runs, whatever becomes of its file; an
endless print loop fills no disk, and both ends of its log are kept; what an unflushed Python prints is there within
two seconds; a full disk kills neither a job nor the daemon."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.node import Node

pytestmark = pytest.mark.e2e

MIB = 1024 * 1024
CONFIG = '[daemon]\nsample = "1s"\n[logs]\ncap = "1M"\n'


def test_the_submitted_text_runs_whatever_becomes_of_its_file(node: Node) -> None:
    script = node.work / "train.sh"
    script.write_text('#!/bin/bash\necho "as submitted, attempt $GQ_ATTEMPT, $1"\nexec sleep "$2"\n')
    script.chmod(0o755)
    first = node.submit("--vram", "20G", "train.sh", "one", "3600")
    second = node.submit("--vram", "20G", "train.sh", "two", "0")
    node.until(lambda: "as submitted, attempt 1, one" in node.logs(first), "it runs")
    script.write_text("#!/bin/bash\necho edited\n")
    node.gq("requeue", str(first))
    node.until(lambda: "attempt 2" in node.logs(first), "it runs again")
    script.unlink()
    node.gq("cancel", str(first))
    assert node.wait(second) == 0
    assert node.logs(second) == "as submitted, attempt 1, two\n"
    assert "edited" not in node.logs(first)


def test_a_print_loop_without_end_keeps_both_ends_of_its_log_and_no_more_than_the_cap(
    make_node: Callable[..., Node],
) -> None:
    node = make_node(config=CONFIG).start()
    loop = 'echo the first line; i=0; while :; do i=$((i+1)); seq -f "round $i line %g" 5000; sleep 0.05; done'
    job = node.submit("--vram", "1G", "--", "sh", "-c", loop)
    log = node.run_directory(job) / "user" / "output.log"
    node.until(lambda: log.exists() and log.stat().st_size > 8 * MIB, "it has printed eight times the cap")
    node.gq("cancel", str(job))
    node.until_state(job, "cancelled")
    assert log.stat().st_size > 8 * MIB
    assert log.stat().st_blocks * 512 <= 2 * MIB
    kept = node.logs(job).splitlines()
    assert kept[0] == "the first line"
    assert kept[1] == "round 1 line 1"
    assert len([line for line in kept if "cut here to keep the log under its cap" in line]) == 1
    assert any(line.startswith("gq: stopping: cancelled by") for line in kept)
    assert sum(len(line) + 1 for line in kept) <= 2 * MIB
    assert node.gq("logs", "-n", "2", str(job)).stdout.splitlines() == kept[-2:]


def test_what_an_unflushed_python_prints_is_visible_within_two_seconds(node: Node) -> None:
    program = "import time; print(time.time(), end=''); time.sleep(3600)"
    node.env.pop("PYTHONUNBUFFERED", None)
    job = node.submit("--vram", "1G", "--", sys.executable, "-c", program)
    printed_at = float(node.until(lambda: node.logs(job), "it is visible while the job runs"))
    assert node.job(job)["state"] == "running"
    log = node.run_directory(job) / "user" / "output.log"
    assert log.stat().st_mtime - printed_at < 2


@pytest.fixture
def small_disk(make_node: Callable[..., Node]) -> Iterator[Node]:
    """A node, not started, whose state directory is a disk of its own of 24 MiB."""
    node = make_node(config=CONFIG)
    node.state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(node.state)], check=True)
    yield node
    node.close()
    subprocess.run(["umount", "--lazy", str(node.state)], check=True)


@pytest.mark.root
def test_nothing_dies_of_a_full_disk(small_disk: Node) -> None:
    node = small_disk.start()
    loop = "i=0; while [ ! -e go ]; do i=$((i+1)); echo tick $i; echo $i > new; mv new count; sleep 0.05; done; exit 5"
    job = node.submit("--vram", "1G", "--restart", "never", "--", "sh", "-c", loop)
    node.until(lambda: ticks(node) > 5, "it works")
    filler = node.state / "filler"
    fill(filler)
    seen = ticks(node)
    node.until(lambda: ticks(node) > seen + 40, "it goes on working on the full disk")
    assert os.statvfs(node.state).f_bavail * os.statvfs(node.state).f_frsize < MIB
    assert node.process is not None
    assert node.process.poll() is None
    assert node.job(job)["state"] == "running"
    assert f"tick {seen}\n" in node.logs(job)
    refused = node.gq("submit", "--vram", "1G", "--", "true", check=False)
    assert refused.returncode in (0, 1)
    assert "Traceback" not in refused.stderr
    node.until(lambda: "NOT SUPERVISED: the disk" in node.gq("status").stdout, "gq status says it")
    doctor = node.gq("doctor", check=False).stdout
    assert "free some space there: no restart is needed" in " ".join(doctor.split())
    if refused.returncode == 1:
        assert "full" in refused.stderr or "space" in refused.stderr

    (node.work / "go").touch()
    pid = node.alive(job)["job"]["pid"]
    node.until(lambda: not Path(f"/proc/{pid}").exists(), "the job ended, and somebody noticed")
    filler.unlink()
    assert node.until_state(job, "failed")["exit_code"] == 5
    assert node.wait(node.submit("--vram", "1G", "--", "true")) == 0
    assert "Traceback" not in node.log.read_text()


@pytest.mark.root
@pytest.mark.parametrize("began_before", [False, True])
def test_a_start_on_a_full_disk_says_so_and_the_next_one_works(small_disk: Node, began_before: bool) -> None:
    if began_before:
        small_disk.start().kill()
    filler = small_disk.state / "filler"
    fill(filler)
    daemon = small_disk.start(wait=False).process
    assert daemon is not None
    assert daemon.wait(60) == 1
    said = small_disk.log.read_text()
    assert "full" in said or "No space left on device" in said
    assert "hint: free some space there" in said
    assert "Traceback" not in said
    filler.unlink()
    small_disk.start()


def ticks(node: Node) -> int:
    try:
        return int((node.work / "count").read_text())
    except FileNotFoundError:
        return 0


def fill(path: Path) -> None:
    """Writes until the disk is full to the last block."""
    with path.open("wb", buffering=0) as file:
        for size in (MIB, 4096):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
