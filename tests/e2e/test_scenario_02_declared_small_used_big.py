"""Scenario 2, declared small, used big (O1): a job declares 8 GiB, and its process tree comes to hold 14.2 GiB of a
card that others have been promised. That job is stopped, "declared 8.0, used 14.2", and none of its neighbours."""

import os
import pwd
import time
from collections.abc import Callable

import pytest

from tests.e2e.node import Node

pytestmark = pytest.mark.e2e

SHARED_LOGIN = f"""
[daemon]
sample = "1s"
shared_logins = ["{pwd.getpwuid(os.geteuid()).pw_name}"]
[overuse]
grace = "2s"
"""
SIGNALLED_WITHIN_S = 30


def test_the_job_that_outgrew_its_claim_is_stopped_and_its_neighbours_go_on(make_node: Callable[..., Node]) -> None:
    node = make_node(config=SHARED_LOGIN).start()
    # The neighbours have not taken all that they were promised yet: 15 + 8 GiB are theirs all the same.
    trainer = node.simjob("6G", "--seconds", "1h", options=["--vram", "15G", "--account", "ann"])
    server = node.simjob("4G", "--seconds", "1h", options=["--vram", "8G", "--light", "--account", "bob"])
    offender = node.simjob(
        "8G", "--escape", "6349M", "--ignore-term", "--seconds", "1h", options=["--vram", "8G", "--account", "eve"]
    )
    node.until(lambda: node.card()["used_mib"] == 10 * 1024 + 8 * 1024 + 6349, "all three hold what they hold")
    seen = time.monotonic()
    node.until_state(offender, "stopping", "stopped")
    assert time.monotonic() - seen < SIGNALLED_WITHIN_S

    ended = node.until_state(offender, "stopped")
    assert ended["reason"] == "declared 8.0 GiB, used 14.2 GiB while card 0 was over-committed"
    assert ended["peak_vram_mib"] == 8 * 1024 + 6349
    assert "declared 8.0 GiB, used 14.2 GiB" in node.logs(offender)
    assert node.card()["used_mib"] == 10 * 1024  # its whole process tree is gone
    for neighbour in (trainer, server):
        assert node.job(neighbour)["state"] == "running"
        assert node.job(neighbour)["attempt"] == 1
        assert "declared" not in node.logs(neighbour)


def test_a_job_over_its_claim_that_still_fits_goes_on_and_says_so(make_node: Callable[..., Node]) -> None:
    node = make_node(config=SHARED_LOGIN).start()
    job = node.simjob("6G", "--seconds", "1h", options=["--vram", "4G"])
    node.until(lambda: node.job(job)["reason_code"] == "over_claim", "the charge follows what is measured")
    assert node.job(job)["state"] == "running"
    assert node.why(job).endswith(
        "declared 4.0 GiB, uses 6.0 GiB: charged for that, and the next attempt will claim it"
    )
