"""The main job from end to end, under the policy that is shipped: submitted, run by right on its card, waited
for."""

import signal
from collections.abc import Callable

import pytest

from tests.e2e.node import Node

pytestmark = pytest.mark.e2e

SCRIPT = """#!/bin/bash
echo "CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES"
echo "CUDA_DEVICE_ORDER=$CUDA_DEVICE_ORDER"
echo "GQ_JOB_ID=$GQ_JOB_ID"
until [ -e finish ]; do sleep 0.1; done
eval "$1"
"""


@pytest.fixture
def node(make_node: Callable[..., Node]) -> Node:
    """A node whose configuration file says nothing."""
    node = make_node(cards="32607M", config="").start()
    (node.work / "train.sh").write_text(SCRIPT)
    return node


def test_a_22_gib_job_runs_by_right_on_its_card_and_its_status_is_the_scripts_own(node: Node) -> None:
    said = node.gq("submit", "--vram", "22G", "train.sh").stdout
    assert said.startswith("job 1 submitted")
    running = node.until_state(1, "running")
    assert (running["vram_mib"], running["cards"], running["attempt"]) == (22528, [0], 1)
    assert (running["class"], running["borrowed_mib"], running["exit_code"]) == ("train", 0, None)
    output = node.until(lambda: "GQ_JOB_ID" in (log := node.logs(1)) and log, "its own output")
    assert "CUDA_VISIBLE_DEVICES=0\nCUDA_DEVICE_ORDER=PCI_BUS_ID\nGQ_JOB_ID=1\n" in output

    (node.work / "finish").touch()
    assert node.wait(1) == 0
    ended = node.job(1)
    assert (ended["state"], ended["exit_code"], ended["reason"]) == ("succeeded", 0, "finished")
    assert ended["submitted_at"] <= ended["started_at"] <= ended["ended_at"]


def test_waiting_for_a_job_returns_how_it_ended(node: Node) -> None:
    (node.work / "finish").touch()
    ends = {"exit 5": 5, "kill -USR1 $$": 128 + signal.SIGUSR1, "exec sleep 1h": 124}
    jobs = {end: node.submit("--vram", "6G", "--restart", "never", "train.sh", end) for end in ends}
    sleeper = jobs["exec sleep 1h"]
    node.until_state(sleeper, "running")
    node.gq("cancel", str(sleeper))
    assert {end: node.wait(job) for end, job in jobs.items()} == ends
    assert node.states() == dict(zip(jobs.values(), ("failed", "failed", "cancelled"), strict=True))
