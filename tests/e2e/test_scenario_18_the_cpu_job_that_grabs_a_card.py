"""Scenario 18, the CPU job that grabs a card (P2): a job of `--vram 0` sees no card, whatever its shell says of
them. Nor does it wait for one: it starts where no VRAM is left, and is charged nothing."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.node import SIMJOB, Node
from tests.e2e.real_cards import RealCards
from tests.nvml_standin import StandInCard

pytestmark = pytest.mark.e2e

SHELL = {"CUDA_VISIBLE_DEVICES": "0", "NVIDIA_VISIBLE_DEVICES": "all"}
# What every CUDA program does first, in the driver's own library, or its stand-in.
CUDA_INIT = "import ctypes; print('cuInit', ctypes.CDLL('libcuda.so.1').cuInit(0))"
NO_DEVICE = 100


def test_a_job_without_vram_sees_no_card_and_waits_for_none(node: Node) -> None:
    full = node.simjob("22G", "--seconds", "1h")
    node.until(lambda: node.card()["used_mib"] == 22 * 1024, "the card is in use")
    print_them = 'echo "[$CUDA_VISIBLE_DEVICES] [$NVIDIA_VISIBLE_DEVICES] ${CUDA_VISIBLE_DEVICES-unset}."'
    job = node.submit("--vram", "0", "--", "bash", "-c", print_them, env=SHELL)
    assert node.wait(job) == 0
    assert "[] [void] ." in node.logs(job)
    ended = node.job(job)
    assert (ended["vram_mib"], ended["cards"], ended["peak_vram_mib"]) == (0, [], None)

    # One that takes a card all the same is told that there is none, and the card's owner notices nothing.
    greedy = node.submit("--vram", "0", "--restart", "never", "--", *SIMJOB, "--vram", "1G", env=SHELL)
    assert node.wait(greedy) == 1
    assert "No CUDA GPUs are available" in node.logs(greedy)
    assert node.job(full)["state"] == "running"
    assert node.card()["strangers"] == []


def test_cuda_itself_finds_no_device(make_node: Callable[..., Node], open_path: Path) -> None:
    card = StandInCard(uuid="GPU-1", bus="00000000:01:00.0", simdir=open_path / "sim")
    node = RealCards(make_node, open_path, [card]).node.start()
    found = {
        vram: node.submit("--vram", vram, "--", sys.executable, "-c", CUDA_INIT, env=SHELL) for vram in ("0", "1G")
    }
    assert [node.wait(job) for job in found.values()] == [0, 0]
    assert f"cuInit {NO_DEVICE}" in node.logs(found["0"])
    assert "cuInit 0" in node.logs(found["1G"])
