"""Scenario 8, counted twice (M3): a job allocates all that it claimed, half of it in children that left its process
tree. Its claim counts once, its children are no strangers, and what is left of the card is given to somebody
else."""

from collections.abc import Callable

import pytest

from gpuqueue.gpu import simdir
from gpuqueue.wire.rundir import MARKER_ENV
from tests.e2e.node import SIMJOB, Node

pytestmark = pytest.mark.e2e

CONFIG = """
[daemon]
sample = "1s"
[quota]
held_back = "0%"
train = "32607M"
"""
HOLD = f"{' '.join(SIMJOB)} --seconds 1h --vram"
SCRIPT = f"""#!/bin/bash
{HOLD} 4G &
( setsid {HOLD} 5G & ) &
( env -u {MARKER_ENV} setsid {HOLD} 6G & ) &
{HOLD} 5G
"""
CLAIM_MIB, CARD_MIB = 20 * 1024, 32607


def test_a_claim_that_is_allocated_by_a_whole_tree_of_processes_counts_once(make_node: Callable[..., Node]) -> None:
    node = make_node(config=CONFIG).start()
    script = node.work / "train.sh"
    script.write_text(SCRIPT)
    job = node.submit("--vram", "20G", str(script))
    _counts_once(node, job)

    node.kill()  # and a daemon that has seen none of these processes being born knows them too
    node.start()
    _counts_once(node, job)

    # All that is left, to the last MiB.
    neighbour = node.simjob(f"{CARD_MIB - CLAIM_MIB}M", "--seconds", "1h")
    node.until(lambda: node.card()["used_mib"] == CARD_MIB, "the rest of the card is in use")
    assert node.job(neighbour)["state"] == node.job(job)["state"] == "running"
    assert node.card()["foreign_mib"] == node.card()["free_to_claim_mib"] == 0


def _counts_once(node: Node, job: int) -> None:
    node.until(lambda: node.card()["used_mib"] == CLAIM_MIB, "the whole claim is allocated")
    card = node.card()
    assert len(simdir.uses(node.state / "sim")) == 4
    assert card["strangers"] == []
    assert (card["charged_mib"], card["foreign_mib"]) == (CLAIM_MIB, 0)
    assert card["free_to_claim_mib"] == CARD_MIB - CLAIM_MIB
    (tenant,) = card["tenants"]
    assert (tenant["job_id"], tenant["charge_mib"], tenant["used_mib"]) == (job, CLAIM_MIB, CLAIM_MIB)
