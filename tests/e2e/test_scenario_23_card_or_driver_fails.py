"""Scenario 23, the card or the driver fails (H1, Z6). While NVML answers with errors the daemon lives and says so,
jobs are untouched, new ones wait; when it is back, all goes on. A lost card is drained with its reason, the jobs on
it are requeued free of charge, and the other card and its jobs notice nothing."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from tests.e2e.node import Node
from tests.e2e.real_cards import RealCards
from tests.nvml_standin import StandInCard

pytestmark = pytest.mark.e2e

NODE_FAULTS = {
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the driver was upgraded",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA kernel module is not loaded",
    pynvml.NVML_ERROR_UNKNOWN: "999",
}
LONG = ("--seconds", "1h", "--save-every", "10")


@pytest.fixture
def real(make_node: Callable[..., Node], open_path: Path) -> RealCards:
    cards = [
        StandInCard(uuid="GPU-b", bus="00000000:65:00.0", simdir=open_path / "sim"),
        StandInCard(uuid="GPU-a", bus="00000000:17:00.0", simdir=open_path / "sim"),
    ]
    return RealCards(make_node, open_path, cards, '[quota]\ntrain = "60G"\n')


def test_errors_of_the_driver_touch_no_job_and_pass(real: RealCards) -> None:
    node = real.node.start()
    job = node.simjob("4G", *LONG, options=["--checkpoint-dir", "out"])
    node.until_state(job, "running")
    for code, said in NODE_FAULTS.items():
        real.show(real.cards, faults={"nvmlDeviceGetCount_v2": code})
        node.until(lambda said=said: all(said in (card["drained"] or "") for card in node.gpus()), f"it says {said}")
        waiting = node.submit("--vram", "1G", "--", "true")
        why = node.why(waiting)
        assert "the cards cannot be read" in why
        assert said in why
        assert (node.job(job)["state"], node.job(job)["attempt"]) == ("running", 1)
        real.show(real.cards)
        assert node.wait(waiting) == 0
    assert node.process is not None
    assert node.process.poll() is None
    assert (node.job(job)["state"], node.job(job)["attempt"]) == ("running", 1)
    assert "Traceback" not in node.log.read_text()


def test_a_daemon_without_a_driver_serves_as_soon_as_there_is_one(real: RealCards) -> None:
    real.show(real.cards, faults={"nvmlInitWithFlags": pynvml.NVML_ERROR_DRIVER_NOT_LOADED})
    node = real.node.start()
    refused = node.gq("submit", "--vram", "1G", "--", "true", check=False)
    assert refused.returncode == 1
    assert "the cards cannot be read: the NVIDIA kernel module is not loaded" in refused.stderr
    assert node.wait(node.submit("--vram", "0", "--", "true")) == 0  # it needs no card
    real.show(real.cards)
    node.until(lambda: node.gq("gpus", check=False).returncode == 0, "the cards are there")
    assert node.wait(node.submit("--vram", "1G", "--", "true")) == 0


@pytest.mark.parametrize("call", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetMemoryInfo_v2"])
def test_a_lost_card_is_drained_and_its_jobs_go_on_elsewhere(real: RealCards, call: str) -> None:
    node = real.node.start()
    untouched = node.simjob("4G", *LONG, options=["--gpu", "0", "--checkpoint-dir", "a"])
    moves = node.simjob("22G", *LONG, options=["--checkpoint-dir", "b"])  # fits on the other card alone
    stays = node.simjob("1G", *LONG, options=["--gpu", "1", "--checkpoint-dir", "c"])
    ends = node.simjob("1G", *LONG, options=["--gpu", "1", "--checkpoint-dir", "d", "--restart", "never", "--light"])
    for job, card in ((untouched, 0), (moves, 1), (stays, 1), (ends, 1)):
        assert node.until_state(job, "running")["cards"] == [card]
    node.until(lambda: "step 20" in node.logs(stays), "it has saved a checkpoint")

    b, a = real.cards
    real.show([replace(b, faults={call: pynvml.NVML_ERROR_GPU_IS_LOST}), a])
    assert node.until_state(ends, "stopped")["reason_code"] == "card_lost"
    assert "card 1 failed: the card is lost" in node.why(ends)
    lost = node.until(lambda: next((card for card in node.gpus() if card["drained"]), None), "the card is drained")
    assert lost["index"] == 1
    assert "the card is lost" in lost["drained"]
    why = node.until(lambda: line if "queued" in (line := node.why(stays)) else "", "it waits for its card")
    assert "card 1 is drained: the card is lost" in why
    assert node.show(stays)["attempts"][0]["outcome"].startswith("card 1 failed: the card is lost")
    node.until(lambda: "needs 22.0 GiB, 19.3 GiB is free" in node.why(moves), "there is no room on the other card")
    assert (node.job(untouched)["state"], node.job(untouched)["attempt"]) == ("running", 1)
    node.gq("cancel", str(untouched))
    assert node.until_state(moves, "running")["cards"] == [0]
    assert node.wait(node.submit("--vram", "1G", "--light", "--", "true")) == 0  # the other card serves

    real.show(real.cards)  # after a reset it is a card like any other
    resumed = node.until_state(stays, "running")
    assert (resumed["attempt"], resumed["restarts"]) == (2, 0)
    assert resumed["resumed_from"].startswith(str(node.work / "c" / "checkpoint-"))
    assert node.job(moves)["state"] == "running"


def test_a_card_that_cannot_be_read_for_a_while_costs_nobody_a_job(real: RealCards) -> None:
    node = real.node.start()
    jobs = [
        node.simjob("4G", *LONG, options=["--gpu", str(index), "--checkpoint-dir", f"out{index}"]) for index in (0, 1)
    ]
    for job in jobs:
        node.until_state(job, "running")
    b, a = real.cards
    real.show([replace(b, faults={"nvmlDeviceGetMemoryInfo_v2": pynvml.NVML_ERROR_TIMEOUT}), a])
    node.until(lambda: node.gpus()[1]["drained"], "card 1 is drained")
    assert "did not answer in time" in node.gpus()[1]["drained"]
    waits = node.submit("--vram", "1G", "--gpu", "1", "--", "true")
    assert "card 1 is drained: the driver did not answer in time" in node.why(waits)
    assert node.wait(node.submit("--vram", "1G", "--", "true")) == 0
    real.show(real.cards)
    assert node.wait(waits) == 0
    assert [(node.job(job)["state"], node.job(job)["attempt"]) for job in jobs] == [("running", 1)] * 2
