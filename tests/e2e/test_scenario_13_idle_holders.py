"""Scenario 13, idle holders (I1, I3): a job at 0 % GPU, one that holds VRAM and one that has never touched the
card, is warned twice, in its log and in the events, and stopped when the window is over; `gq show` has the reason
and numbers."""

import re
from collections.abc import Callable

import pytest

from tests.e2e.node import Node

pytestmark = pytest.mark.e2e

# Thresholds that a busy machine does not reach by itself, nor an idle Python.
WINDOW_S = 6
CONFIG = f"""
[daemon]
sample = "1s"
[idle]
train_window = "{WINDOW_S}s"
cpu = 0.05
"""
REASON = re.compile(r"idle for (\d+)s: GPU 0\.0 %, 0\.0\d CPU cores, \d+ KiB/s of I/O on average; limit 6s")


@pytest.mark.parametrize("holds", ["VRAM", "nothing but its claim"])
def test_an_idle_holder_is_warned_twice_and_then_stopped(make_node: Callable[..., Node], holds: str) -> None:
    node = make_node(config=CONFIG).start()
    if holds == "VRAM":
        job = node.simjob("20G", "--gpu-util", "0", "--seconds", "1h")
    else:
        job = node.submit("--vram", "20G", "--", "sleep", "3600")
    waiting = node.submit("--vram", "20G", "--", "true")
    stopped = node.until_state(job, "stopped")
    assert stopped["reason_code"] == "idle"
    found = REASON.fullmatch(stopped["reason"])
    assert found
    assert int(found[1]) >= WINDOW_S
    assert stopped["attempt"] == 1  # whatever its restart policy
    assert node.wait(job) == 124

    said = [line for line in node.logs(job).splitlines() if line.startswith("gq: ")]
    warnings = [line for line in said if "will be stopped in" in line]
    assert len(warnings) == 2
    assert all(f"gq keep {job} 2h" in line for line in warnings)
    assert said[-1] == f"gq: stopping: {stopped['reason']}"
    kinds = [event["kind"] for event in node.show(job)["events"]]
    assert kinds == ["submitted", "started", "warned", "warned", "stopping", "ended"]
    shown = " ".join(node.gq("show", str(job)).stdout.split())
    assert stopped["reason"] in shown
    assert node.wait(waiting) == 0  # what it held is for others


def test_a_kept_job_is_not_stopped_when_its_window_is_over(make_node: Callable[..., Node]) -> None:
    node = make_node(config=CONFIG.replace(f'"{WINDOW_S}s"', '"12s"')).start()
    kept = node.submit("--vram", "1G", "--", "sleep", "3600")
    node.gq("keep", str(kept), "1h")
    other = node.submit("--vram", "1G", "--", "sleep", "3600")
    node.until_state(other, "stopped")
    assert node.job(kept)["state"] == "running"
    assert "will be stopped" not in node.logs(kept)
