"""Scenario 5, the wrong card (P2): the orders of NVML, of the PCI bus and of CUDA all differ. A job that is given a
card sees that card and no other, whatever its shell had in the variables, and its VRAM is measured there."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.node import ROOT, Node
from tests.e2e.real_cards import RealCards
from tests.nvml_standin import StandInCard

pytestmark = pytest.mark.e2e

HOLD = str(ROOT / "tests" / "gpu" / "programs" / "hold.py")
BUSES = {"GPU-first": "00000000:17:00.0", "GPU-second": "00000000:65:00.0", "GPU-third": "00000000:B3:00.0"}
NVML_ORDER = ("GPU-second", "GPU-first", "GPU-third")  # the stand-in for CUDA counts these backwards


@pytest.fixture(params=["index", "uuid"])
def node(request: pytest.FixtureRequest, make_node: Callable[..., Node], open_path: Path) -> Node:
    cards = [StandInCard(uuid=uuid, bus=BUSES[uuid], simdir=open_path / "sim") for uuid in NVML_ORDER]
    return RealCards(make_node, open_path, cards, f'[place]\npin = "{request.param}"\n').node.start()


def test_a_job_sees_the_card_that_it_was_given_and_no_other(node: Node) -> None:
    listed = node.gpus()
    assert [card["uuid"] for card in listed] == sorted(BUSES, key=lambda uuid: BUSES[uuid])
    unpinned = subprocess.run(
        [sys.executable, HOLD, "0", "0"], env=node.env | {"CUDA_VISIBLE_DEVICES": "0"}, capture_output=True, check=True
    )  # the orders do differ here, or this test could not fail
    assert json.loads(unpinned.stdout)["pci_bus_ids"] == [BUSES["GPU-third"].removeprefix("0000")]

    shell = {"CUDA_VISIBLE_DEVICES": "2,1,0", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    jobs = {
        index: node.submit("--vram", "3G", "--gpu", str(index), "--", sys.executable, HOLD, "3072", "3600", env=shell)
        for index in range(3)
    }
    for index, job in jobs.items():
        node.until(lambda job=job: "holding" in node.logs(job), f"job {job} holds its VRAM")
        assert node.job(job)["cards"] == [index]
        assert seen(node, job) == [listed[index]["pci_bus_id"]]
    node.until(
        lambda: [card["used_mib"] for card in node.gpus()] == [3072] * 3, "each card is measured to hold its job's"
    )
    for index, card in enumerate(node.gpus()):
        assert [(t["job_id"], t["used_mib"]) for t in card["tenants"]] == [(jobs[index], 3072)]
        assert card["strangers"] == []
        assert card["foreign_mib"] == 0


def seen(node: Node, job: int) -> list[str]:
    """The bus ids of the cards that CUDA shows the job, as NVML writes them."""
    line = next(line for line in node.logs(job).splitlines() if line.startswith("{"))
    return ["0000" + bus for bus in json.loads(line)["pci_bus_ids"]]
