"""The contract of engine.ports.Cards, on every implementation: real processes take real shares of the cards."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuqueue.core.readings import CardReading, GpuProcess
from gpuqueue.engine.ports import Cards
from gpuqueue.gpu.nvml import NvmlCards
from gpuqueue.gpu.simulated import SimulatedCards
from tests import nvml_standin
from tests.nvml_standin import StandInCard

TOTALS_MIB = (24564, 46068)


@dataclass
class World:
    """Two cards in PCI order, `totals_mib` each, and a way to spoil them."""

    cards: Cards
    environment: dict[str, str]  # for a program that is not a job
    spoil: Callable[[], None]


@pytest.fixture(params=["simulated", "nvml"])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    build = {"simulated": _simulated, "nvml": _nvml}[request.param]
    built = build(tmp_path, monkeypatch)
    yield built
    built.cards.close()


def _simulated(tmp_path: Path, _monkeypatch: pytest.MonkeyPatch) -> World:
    directory = tmp_path / "sim"
    cards = SimulatedCards(directory, TOTALS_MIB)
    return World(cards, dict(cards.job_environment()), lambda: directory.rename(tmp_path / "gone"))


def _nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """NVML's order is not the PCI order (scenario 5)."""
    first, second = (
        StandInCard(uuid=f"GPU-{name}", bus=bus, total_mib=total_mib, simdir=tmp_path / "sim")
        for name, bus, total_mib in zip("ba", ("00000000:41:00.0", "00000000:C1:00.0"), TOTALS_MIB, strict=True)
    )
    world = tmp_path / "cards"
    nvml_standin.write_cards(world, [second, first])
    monkeypatch.setenv(nvml_standin.CARDS_ENV, str(world))
    nvml_standin.load()
    return World(
        NvmlCards(),
        {"GQ_SIM_DIR": str(tmp_path / "sim")},
        lambda: nvml_standin.write_cards(world, [second, first], faults={"nvmlDeviceGetCount_v2": 999}),
    )


@pytest.fixture
def start(world: World) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a simjob, which holds its VRAM when this returns."""
    started: list[subprocess.Popen[str]] = []

    def starter(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "gpuqueue.simjob", "--seconds", "60", *arguments],
            env={**_bare_environment(), **world.environment, **environment},
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("holds"), line
        return process

    yield starter
    for process in started:
        process.kill()
        process.communicate()


def _bare_environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(("GQ_", "CUDA_"))}


def _read(world: World) -> Sequence[CardReading]:
    reading = world.cards.read()
    assert reading.fault is None
    return reading.cards


def _eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_cards_come_in_pci_order_with_their_rank_as_index(world: World) -> None:
    cards = _read(world)
    assert [card.index for card in cards] == [0, 1]
    assert [card.total_mib for card in cards] == list(TOTALS_MIB)
    assert [card.pci_bus_id for card in cards] == sorted(card.pci_bus_id for card in cards)
    assert len({card.uuid for card in cards}) == 2
    assert all(card.name and card.used_mib == 0 and card.processes == () and card.fault is None for card in cards)


def test_uuids_are_the_same_at_every_reading(world: World) -> None:
    assert [card.uuid for card in _read(world)] == [card.uuid for card in _read(world)]


@pytest.mark.parametrize("index", [0, 1])
def test_index_means_the_same_card_to_cuda_as_to_us(
    world: World, start: Callable[..., subprocess.Popen[str]], index: int
) -> None:
    process = start("--vram", "1G", CUDA_VISIBLE_DEVICES=str(index), CUDA_DEVICE_ORDER="PCI_BUS_ID")
    holders = [[found.pid for found in card.processes or ()] for card in _read(world)]
    assert holders[index] == [process.pid]
    assert holders[1 - index] == []


def test_what_a_process_holds_is_read_with_its_pid_and_utilisation(
    world: World, start: Callable[..., subprocess.Popen[str]]
) -> None:
    process = start("--vram", "8G", "--gpu-util", "73", CUDA_VISIBLE_DEVICES=_read(world)[0].uuid)
    card = _read(world)[0]
    assert card.used_mib == 8192
    assert card.processes == (GpuProcess(pid=process.pid, used_mib=8192, gpu_percent=73),)


def test_vram_is_free_once_its_process_is_killed(world: World, start: Callable[..., subprocess.Popen[str]]) -> None:
    process = start("--vram", "8G", CUDA_VISIBLE_DEVICES="0", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    process.send_signal(signal.SIGKILL)
    _eventually(lambda: _read(world)[0].used_mib == 0)
    assert _read(world)[0].processes == ()


def test_vram_of_a_zombie_is_free(world: World, start: Callable[..., subprocess.Popen[str]]) -> None:
    process = start("--vram", "8G", CUDA_VISIBLE_DEVICES="0", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert _read(world)[0].used_mib == 0


def test_used_is_the_sum_over_all_processes(world: World, start: Callable[..., subprocess.Popen[str]]) -> None:
    pids = {start("--vram", size, CUDA_VISIBLE_DEVICES=_read(world)[1].uuid).pid for size in ("3G", "5G", "500M")}
    card = _read(world)[1]
    assert {process.pid for process in card.processes or ()} == pids
    assert card.used_mib == 8 * 1024 + 500


def test_a_fault_is_a_reading_and_leaves_the_cards_there(world: World) -> None:
    before = _read(world)
    world.spoil()
    reading = world.cards.read()
    assert reading.fault
    assert [card.uuid for card in reading.cards] == [card.uuid for card in before]
    assert all(card.fault for card in reading.cards)


def test_a_job_needs_only_text_in_its_environment(world: World) -> None:
    environment = world.cards.job_environment()
    assert all(isinstance(key, str) and isinstance(value, str) for key, value in environment.items())
    assert bool(environment) == world.cards.simulated
