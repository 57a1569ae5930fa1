"""Scenario 3, orphans keep the card (Z2, Z3): children of a job called setsid, forked twice, shed the job's marker
and ignore SIGTERM. When the job is cancelled none of them is left, and their VRAM is measured free before anybody
gets it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuqueue.gpu import simdir
from gpuqueue.wire.rundir import MARKER_ENV
from tests.e2e.node import SIMJOB, Node

pytestmark = pytest.mark.e2e

HOLD = f"{' '.join(SIMJOB)} --ignore-term --seconds 1h --vram"
SCRIPT = f"""#!/bin/bash
trap '' TERM
setsid {HOLD} 3G &
( setsid {HOLD} 4G & ) &
( env -u {MARKER_ENV} setsid {HOLD} 5G & ) &
( setsid sh -c 'echo $$ > asleep; exec sleep 3600' & ) &
{HOLD} 8G
"""
CLAIM, HELD_MIB = "20G", 20 * 1024


@pytest.mark.parametrize("containment", ["auto", "session"])
def test_a_cancelled_job_leaves_nothing_behind_before_its_vram_is_given_away(
    make_node: Callable[..., Node], containment: str
) -> None:
    node = make_node(config=f'[daemon]\nsample = "1s"\ncontainment = "{containment}"\n').start()
    script = node.work / "train.sh"
    script.write_text(SCRIPT)
    job = node.submit("--vram", CLAIM, "--grace", "1s", str(script))
    node.until(lambda: node.card()["used_mib"] == HELD_MIB, "it and its children hold what they hold")
    orphans = {use.pid for use in simdir.uses(node.state / "sim")}
    orphans.add(int(node.until(lambda: _text(node.work / "asleep"), "the one without VRAM says who it is")))
    assert node.card()["strangers"] == []
    assert len(orphans) == 5
    # It dies at once, with status 1, of a card that is not free: no attempt can be spared.
    heir = node.simjob("22G", "--steps", "1", options=["--restart", "never"])
    assert node.job(heir)["state"] == "queued"

    node.gq("cancel", str(job))
    node.until_state(job, "cancelled")
    assert {pid for pid in orphans if _lives(pid)} == set()
    assert node.wait(heir) == 0


def _text(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
