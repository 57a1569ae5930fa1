"""Scenario 7, rounding (M2): a card that NVML reports with 46068 MiB, 450 of them reserved by the driver, is asked
for 2000 MiB twenty-four times, with nothing held back. Exactly 22 run: 45618 MiB hold no more, though 46068 would
hold 23."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.node import Node
from tests.e2e.real_cards import RealCards
from tests.nvml_standin import StandInCard

pytestmark = pytest.mark.e2e

CONFIG = """
[quota]
held_back = "0%"
train = "46068M"
"""


def test_what_the_driver_reserves_is_not_handed_out(make_node: Callable[..., Node], open_path: Path) -> None:
    bus, sim = "00000000:01:00.0", open_path / "sim"
    card = StandInCard(uuid="GPU-7", bus=bus, total_mib=46068, reserved_mib=450, simdir=sim)
    node = RealCards(make_node, open_path, [card], CONFIG).node.start()
    assert node.card()["capacity_mib"] == 45618
    jobs = [node.submit("--vram", "2000M", "--", "sleep", "1h") for _ in range(24)]
    node.until(lambda: node.states()[jobs[21]] == "running", "the 22nd runs")
    assert Counter(node.states().values()) == {"running": 22, "queued": 2}
    assert node.card()["free_to_claim_mib"] == 45618 - 22 * 2000
    assert "1.6 GiB is free for train jobs" in node.why(jobs[22])
