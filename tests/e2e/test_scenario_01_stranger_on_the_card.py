"""Scenario 1, a stranger on the card (F1, M3): a process started by hand holds 21 GiB of a 32 GB card. A job of 22
GiB waits, saying which process that is, whose, and how much it holds, and starts once that VRAM is free."""

import os
import pwd

import pytest

from tests.e2e.node import Node

pytestmark = pytest.mark.e2e


def test_a_job_waits_for_a_stranger_by_name_and_starts_once_its_vram_is_free(node: Node) -> None:
    me = pwd.getpwuid(os.geteuid()).pw_name
    stranger = node.stranger("21G", "--seconds", "1h")
    try:
        node.until(lambda: node.card()["strangers"], "the stranger is seen")
        job = node.simjob("22G", "--seconds", "1h")

        verdict = node.why(job)
        assert f"job {job} queued" in verdict
        assert "needs 22.0 GiB" in verdict
        assert "21.0 GiB of card 0 is held outside the queue" in verdict
        assert f"pid {stranger.pid} of {me}" in verdict
        (listed,) = node.card()["strangers"]
        assert (listed["pid"], listed["user"], listed["used_mib"]) == (stranger.pid, me, 21 * 1024)
        assert "simjob" in listed["command"]

        # What fits beside the stranger runs meanwhile, from start to end: the big job is considered and waits on.
        assert node.wait(node.simjob("1G", "--steps", "15")) == 0
        assert node.job(job)["state"] == "queued"
    finally:
        stranger.kill()
        stranger.wait()
    node.until_state(job, "running")
    node.until(lambda: node.job(job)["peak_vram_mib"] == 22 * 1024, "it holds what it asked for")
    assert node.job(job)["attempt"] == 1
    assert node.card()["strangers"] == []
