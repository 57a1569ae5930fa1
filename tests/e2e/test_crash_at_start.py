"""A job that crashes as soon as it starts (R1, R3): its pause is visible, its VRAM is another's meanwhile, and at
the limit it is stopped with the reason, by the same count if the daemon was restarted in between."""

import re
from collections.abc import Callable

import pytest

from gpuqueue.wire.units import parse_seconds
from tests.e2e.node import Node

pytestmark = pytest.mark.e2e

CONFIG = """
[daemon]
sample = "1s"
[restart]
backoff_base = "2s"
crash_limit = 4
"""


def test_a_crash_at_start_backs_off_frees_its_vram_and_ends_at_the_limit(make_node: Callable[..., Node]) -> None:
    node = make_node(config=CONFIG).start()
    script = node.work / "train.sh"
    script.write_text("#!/bin/bash\necho no data here >&2\nexit 3\n")
    job = node.submit("--vram", "22G", str(script))

    paused = node.until_state(job, "backoff")
    assert re.fullmatch(r"exited with status 3; next try in \d+s \(failures in a row: \d\)", paused["reason"])
    assert paused["cards"] == []
    node.until(lambda: f"job {job} backoff" in node.why(job), "`gq why` says so too")
    # Nobody waits for it: another one that needs the same VRAM runs, from start to end, between two of its attempts.
    other = node.simjob("22G", "--steps", "5")
    assert node.wait(other) == 0
    assert node.job(job)["state"] != "stopped"
    node.restart()

    assert node.wait(job) == 124
    ended = node.job(job)
    assert ended["reason"] == "failed 4 times in a row without a newer checkpoint; last: exited with status 3"
    assert (ended["state"], ended["attempt"], ended["restarts"], ended["exit_code"]) == ("stopped", 4, 3, 3)
    assert "no data here" in node.logs(job)
    assert node.card()["free_to_claim_mib"] == 32607


def test_a_pause_is_no_longer_for_a_daemon_that_died_in_it(make_node: Callable[..., Node]) -> None:
    """The clock is written down every ten seconds: what came after that is known by the records that bear its time."""
    node = make_node(config=CONFIG.replace('backoff_base = "2s"', 'backoff_base = "5m"')).start()
    assert node.wait(node.submit("--vram", "1G", "--", "sleep", "5")) == 0  # some seconds have passed
    job = node.submit("--vram", "1G", "--", "false")
    node.until_state(job, "backoff")
    before_s = pause_s(node, job)
    node.kill()
    node.start()
    assert pause_s(node, job) <= before_s


def pause_s(node: Node, job: int) -> int:
    said = re.search(r"next try in (\S+)", node.job(job)["reason"])
    assert said is not None
    return parse_seconds(said[1])
