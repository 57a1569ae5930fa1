"""Scenario 20, the crash loop (R3, R4): a job that dies as soon as it starts is tried again after pauses that grow,
and no more after the limit. A checkpoint that nobody gets past is passed over for the one before it. Both counts are
kept over the death of the daemon."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.node import Node

pytestmark = pytest.mark.e2e

CONFIG = """
[daemon]
sample = "1s"
[restart]
backoff_base = "1s"
backoff_max = "{longest}"
crash_limit = 4
"""


def test_the_pauses_grow_and_the_limit_holds_for_a_daemon_that_died_in_between(make_node: Callable[..., Node]) -> None:
    node = make_node(config=CONFIG.format(longest="10m")).start()
    job = node.simjob("8G", "--crash-at-step", "0", "--exit-code", "3")
    node.until(lambda: node.job(job)["attempt"] == 2, "its second attempt")
    node.kill()
    node.start()

    ended = node.until_state(job, "stopped")
    assert ended["reason"] == "failed 4 times in a row without a newer checkpoint; last: exited with status 3"
    assert (ended["attempt"], ended["exit_code"]) == (4, 3)
    pauses = _pauses_s(node.show(job))
    assert pauses in ([1, 2, 4], [1, 2, 5])  # doubled each time, and up to a quarter more
    attempts = node.show(job)["attempts"]
    for before, after, pause_s in zip(attempts, attempts[1:], pauses, strict=False):
        assert after["started_at"] - before["ended_at"] >= pause_s - 1  # both are cut to whole seconds


def test_a_checkpoint_that_nobody_gets_past_is_passed_over(make_node: Callable[..., Node]) -> None:
    node = make_node(config=CONFIG.format(longest="1s")).start()
    checkpoints = node.work / "checkpoints"
    job = node.simjob(
        *("1G", "--save-every", "10", "--steps", "30", "--step-seconds", "0.02"),
        *("--crash-at-step", "25", "--crash-attempts", "3"),
        options=["--checkpoint-dir", str(checkpoints)],
    )
    node.until(lambda: node.job(job)["attempt"] == 2, "its second attempt")
    node.kill()
    node.start()
    assert node.wait(job) == 0
    attempts = node.show(job)["attempts"]
    resumed = [attempt["resumed_from"] for attempt in attempts]
    assert resumed == [None, *[str(checkpoints / name) for name in ("checkpoint-20", "checkpoint-20", "checkpoint-10")]]
    log = node.logs(job)
    assert f"skipped {checkpoints / 'checkpoint-20'}: " in log
    assert f"resumed from {checkpoints / 'checkpoint-10'} at step 10" in log


def _pauses_s(detail: dict[str, Any]) -> list[int]:
    """The pauses as they were announced, one an attempt that was followed by another."""
    told = (re.search(r"next try in (\d+) s", event["text"]) for event in detail["events"])
    return [int(found[1]) for found in told if found]
