"""Scenario 6, two starts race (M3): twenty people submit 10 GiB each at the same moment, to a card of 32 GiB of
which nothing is held back. Exactly three start, although none of them has allocated anything yet."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable

import pytest

from tests.e2e.node import Node

pytestmark = pytest.mark.e2e

CONFIG = """
[daemon]
sample = "1s"
[quota]
held_back = "0%"
train = "32G"
"""


def test_twenty_submits_at_once_start_three_jobs(make_node: Callable[..., Node]) -> None:
    node = make_node(cards="32G", config=CONFIG).start()
    command = [sys.executable, "-m", "gq", "submit", "-q", "--vram", "10G", "--", "sleep", "1h"]
    submits = [
        subprocess.Popen(command, env=node.env, cwd=node.work, stdout=subprocess.PIPE, text=True) for _ in range(20)
    ]
    jobs = [int(submit.communicate()[0]) for submit in submits]
    assert len(set(jobs)) == 20
    assert node.card()["used_mib"] == 0
    assert _states(node) == {"running": 3, "queued": 17}
    assert _starts(node) == 3

    # One leaves: exactly one takes its place.
    running = next(job["id"] for job in node.jobs() if job["state"] == "running")
    node.gq("cancel", str(running))
    node.until(lambda: _starts(node) == 4, "another one starts")
    node.until(lambda: _states(node) == {"running": 3, "queued": 16, "cancelled": 1}, "three run again")


def _states(node: Node) -> Counter[str]:
    """Starting counts as running: what matters is that VRAM was handed out."""
    return Counter("running" if state == "starting" else state for state in node.states().values())


def _starts(node: Node) -> int:
    events = json.loads(node.gq("events", "--json", "--limit", "1000").stdout)
    return sum(event["kind"] == "started" for event in events)
