"""Scenario 21, no time to save (Z2, R2): a trainer below `bash train.sh` saves when it gets the signal. Stopped to
be requeued, its handler runs to its end within the grace, though the shell above it dies of the signal at once; the
next attempt is given the newest complete checkpoint, and what the shell's death left half-written is passed
over."""

import sys

import pytest

from tests.e2e.node import Node

pytestmark = pytest.mark.e2e

SAVE_S = 12  # longer than what children get that outlive their job without a stop order
TRAIN = f"""\
#!/bin/bash
set -e
echo "attempt $GQ_ATTEMPT starts from ${{GQ_RESUME_FROM:-scratch}}"
{sys.executable} -m gpuqueue.simjob --vram 2G --steps 1000 --step-seconds 0.2 --save-every 500 --save-seconds "$1"
echo "the shell lived on"
"""


@pytest.mark.parametrize("started_by", ["script", "bash script"])
def test_a_trainer_below_a_shell_saves_within_the_grace_and_goes_on_from_there(node: Node, started_by: str) -> None:
    (node.work / "train.sh").write_text(TRAIN)
    command = ["train.sh"] if started_by == "script" else ["--", "bash", "train.sh"]
    words = ["--vram", "2G", "--grace", "60s", "--checkpoint-dir", "out"]
    job = node.submit(*words, *command, str(SAVE_S))
    node.until(lambda: "step 10" in node.logs(job), "it trains")
    node.gq("requeue", str(job))
    node.until_state(job, "stopping")
    node.until(lambda: node.job(job)["attempt"] == 2, "it was requeued and started again")

    first = node.gq("logs", str(job), "--attempt", "1").stdout
    assert "starts from scratch" in first
    assert "gq: stopping: requeued by" in first
    (saved,) = [line.removeprefix("saved ") for line in first.splitlines() if line.startswith("saved ")]
    assert "stopped by SIGTERM after step" in first
    assert "the shell lived on" not in first
    second = node.until(lambda: log if "resumed" in (log := node.logs(job)) else "", "the second attempt goes on")
    assert f"attempt 2 starts from {saved}" in second
    assert f"resumed from {saved} at step {saved.rpartition('-')[2]}" in second
    shown = node.show(job)
    assert shown["job"]["restarts"] == 0  # free of charge
    assert shown["job"]["resumed_from"] == saved
    assert "requeued by" in shown["attempts"][0]["outcome"]
    assert (node.work / "out").is_dir()


def test_what_is_not_saved_when_the_grace_is_over_is_killed_and_passed_over(node: Node) -> None:
    (node.work / "train.sh").write_text(TRAIN)
    words = ["--vram", "2G", "--grace", "2s", "--checkpoint-dir", "out", "train.sh", "600"]
    job = node.submit(*words)
    node.until(lambda: "step 10" in node.logs(job), "it trains")
    node.gq("requeue", str(job))
    second = node.until(lambda: log if "attempt 2" in (log := node.logs(job)) else "", "it starts again")
    assert "attempt 2 starts from scratch" in second
    assert "no complete checkpoint of this job yet" in second
