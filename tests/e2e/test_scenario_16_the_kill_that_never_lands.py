"""Scenario 16, the kill that never lands (Z2, Z3): a process that ignores SIGTERM gets SIGKILL at the end of the
grace. One that survives even that, as in a frozen cgroup v1 freezer, keeps its VRAM charged and its card flagged
until it is gone."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.node import Node

pytestmark = pytest.mark.e2e

GRACE_S, SLOW_MACHINE_S = 2, 20
CARD_MIB = 32607


def test_who_ignores_the_signal_is_killed_when_its_grace_is_over(node: Node) -> None:
    job = node.simjob("8G", "--ignore-term", "--seconds", "1h", options=["--vram", "8G", "--grace", f"{GRACE_S}s"])
    node.until(lambda: node.card()["used_mib"] == 8 * 1024, "it holds its VRAM")
    node.gq("cancel", str(job))
    ended = node.until_state(job, "cancelled")

    order, end = (_record(node, job, name) for name in ("stop.json", "exit.json"))
    assert (end["signal"], end["killed"], end["leftover_pids"]) == (9, True, [])
    assert GRACE_S <= end["ended_at"] - order["asked_at"] < GRACE_S + SLOW_MACHINE_S
    assert ended["exit_code"] == 128 + 9
    assert "cancelled by" in ended["reason"]
    node.until(lambda: node.card()["free_to_claim_mib"] == CARD_MIB, "its VRAM is free again")
    assert node.card()["notes"] == []


@pytest.mark.root
def test_who_survives_the_kill_keeps_its_vram_charged_and_its_card_flagged(node: Node, open_path: Path) -> None:
    job = node.simjob("20G", "--seconds", "1h", options=["--vram", "20G", "--grace", "1s"])
    node.until(lambda: node.card()["used_mib"] == 20 * 1024, "it holds its VRAM")
    pid = node.alive(job)["job"]["pid"]
    heir = node.simjob("22G", "--steps", "1", options=["--restart", "never"])
    with _frozen(node, pid, open_path):
        node.gq("cancel", str(job))
        node.until_state(job, "cancelled")
        (flag,) = node.until(lambda: node.card()["notes"], "the card is flagged")
        assert flag.startswith(f"process {pid} of job {job} survives SIGKILL")
        _still_charged(node, job, heir)
        node.restart()  # another daemon knows it too
        assert node.card()["notes"] == [flag]
        _still_charged(node, job, heir)
    # Thawed, it dies of the signal that waited for it.
    assert node.wait(heir) == 0
    node.until(lambda: node.card()["free_to_claim_mib"] == CARD_MIB, "all is free again")
    assert node.card()["notes"] == []


def _still_charged(node: Node, job: int, heir: int) -> None:
    """Once, not twice: what is charged to its job is nobody else's."""
    card = node.card()
    assert (card["used_mib"], card["charged_mib"], card["foreign_mib"]) == (20 * 1024, 20 * 1024, 0)
    assert card["strangers"] == []
    assert card["free_to_claim_mib"] == CARD_MIB - 20 * 1024
    assert node.job(heir)["state"] == "queued"
    assert f"job {job} of" in node.why(heir)
    assert "ended but not yet measured free" in node.why(heir)


def _record(node: Node, job: int, name: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((node.run_directory(job) / name).read_text())
    return record


@contextmanager
def _frozen(node: Node, pid: int, directory: Path) -> Iterator[None]:
    """The process frozen by cgroup v1, where SIGKILL waits until it is thawed."""
    with _freezer(directory) as freezer:
        group = freezer / f"gpuqueue-test-{pid}"
        group.mkdir()
        try:
            (group / "cgroup.procs").write_text(str(pid))
            (group / "freezer.state").write_text("FROZEN")
            node.until(lambda: (group / "freezer.state").read_text().strip() == "FROZEN", f"process {pid} is frozen")
            yield
        finally:
            (group / "freezer.state").write_text("THAWED")
            for left in (group / "cgroup.procs").read_text().split():
                (freezer / "cgroup.procs").write_text(left)
            group.rmdir()


@contextmanager
def _freezer(directory: Path) -> Iterator[Path]:
    """Where the freezer is mounted, or a mount of it that lasts as long."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "cgroup" and "freezer" in options.split(","):
            yield Path(where)
            return
    mount = directory / "freezer"
    mount.mkdir()
    done = subprocess.run(["mount", "-t", "cgroup", "-o", "freezer", "freezer", mount], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"this kernel has no cgroup v1 freezer: {done.stderr.strip()}")
    try:
        yield mount
    finally:
        subprocess.run(["umount", mount], check=True)
