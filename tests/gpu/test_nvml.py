"""NvmlCards through the real pynvml, on the stand-in library: numbers, order, and every kind of NVML error."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from gpuqueue.core.readings import CardReading, GpuProcess
from gpuqueue.gpu.nvml import NvmlCards
from tests import nvml_standin
from tests.nvml_standin import StandInCard, StandInProcess

FIRST = StandInCard(uuid="GPU-aaaa", bus="00000000:17:00.0", total_mib=46068, reserved_mib=450, minor=1)
SECOND = StandInCard(uuid="GPU-bbbb", bus="00000000:65:00.0", total_mib=32607, reserved_mib=489, minor=0)
GPU_IS_LOST, RESET_REQUIRED, MISMATCH, UNKNOWN, TIMEOUT = 15, 16, 18, 999, 10

ALL_ERRORS = sorted(
    {value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_") and isinstance(value, int)}
)
CALLS_PER_CARD = [
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetComputeRunningProcesses_v2",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetProcessUtilization",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetTemperatureThreshold",
    "nvmlDeviceGetMarginTemperature",
]
CALLS_OF_THE_NODE = ["nvmlInitWithFlags", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount_v2"]


class Node:
    """A machine with the stand-in's cards."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.nvml = NvmlCards()

    def show(self, *cards: StandInCard, driver: str = "580.65.06", **faults: int) -> None:
        nvml_standin.write_cards(self.path, cards, driver=driver, faults=faults)

    def card(self) -> CardReading:
        reading = self.nvml.read()
        assert reading.fault is None
        assert len(reading.cards) == 1
        return reading.cards[0]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setenv(nvml_standin.CARDS_ENV, str(tmp_path / "cards"))
    nvml_standin.load()
    built = Node(tmp_path / "cards")
    yield built
    built.nvml.close()


def test_order_is_by_pci_bus_id_whatever_nvml_says(node: Node) -> None:
    node.show(SECOND, FIRST)
    cards = node.nvml.read().cards
    assert [(card.index, card.uuid, card.minor) for card in cards] == [(0, "GPU-aaaa", 1), (1, "GPU-bbbb", 0)]


def test_reserved_memory_is_told_apart_from_used(node: Node) -> None:
    node.show(replace(FIRST, used_mib=3, processes=[StandInProcess(pid=11, mib=2000)]))
    card = node.card()
    assert (card.total_mib, card.reserved_mib, card.used_mib) == (46068, 450, 2003)


def test_without_memory_v2_what_is_reserved_counts_as_used(node: Node) -> None:
    node.show(replace(FIRST, faults={"nvmlDeviceGetMemoryInfo_v2": pynvml.NVML_ERROR_FUNCTION_NOT_FOUND}))
    card = node.card()
    assert (card.total_mib, card.reserved_mib, card.used_mib) == (46068, 0, 450)


def test_driver_version_is_reported(node: Node) -> None:
    node.show(FIRST, driver="570.1")
    assert node.nvml.read().driver == "570.1"


def test_compute_and_graphics_processes_are_merged_by_pid(node: Node) -> None:
    processes = [
        StandInProcess(pid=12, mib=700, kind="B"),
        StandInProcess(pid=11, mib=500),
        StandInProcess(pid=12, mib=900, kind="C"),
        StandInProcess(pid=13, mib=40, kind="G"),
    ]
    node.show(replace(FIRST, processes=processes))
    assert [(p.pid, p.used_mib) for p in node.card().processes or ()] == [(11, 500), (12, 900), (13, 40)]


def test_hidden_memory_of_a_process_is_none_and_not_zero(node: Node) -> None:
    node.show(replace(FIRST, processes=[StandInProcess(pid=11, mib=500, hidden=True)]))
    card = node.card()
    assert [(p.pid, p.used_mib) for p in card.processes or ()] == [(11, None)]
    assert card.used_mib == 500


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_NO_PERMISSION])
def test_where_processes_are_hidden_there_is_no_list(node: Node, code: int) -> None:
    calls = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")
    node.show(replace(FIRST, processes=[StandInProcess(pid=11, mib=500)], faults=dict.fromkeys(calls, code)))
    card = node.card()
    assert card.processes is None
    assert card.fault is None


def test_an_older_driver_lists_processes_by_an_older_call(node: Node) -> None:
    faults = {"nvmlDeviceGetComputeRunningProcesses_v3": pynvml.NVML_ERROR_FUNCTION_NOT_FOUND}
    node.show(replace(FIRST, processes=[StandInProcess(pid=11, mib=500)], faults=faults))
    assert [p.pid for p in node.card().processes or ()] == [11]


def test_utilisation_of_a_process_is_its_mean_since_the_reading_before(node: Node) -> None:
    processes = [StandInProcess(pid=11, mib=500), StandInProcess(pid=12, mib=500)]
    samples = [(11, 1_000, 80), (11, 2_000, 40), (12, 2_000, 255), (99, 2_000, 50)]
    node.show(replace(FIRST, processes=processes, samples=samples))
    assert [p.gpu_percent for p in node.card().processes or ()] == [60, 100]
    node.show(replace(FIRST, processes=processes, samples=[*samples, (12, 3_000, 10)]))
    assert [p.gpu_percent for p in node.card().processes or ()] == [0, 10]
    assert [p.gpu_percent for p in node.card().processes or ()] == [0, 0]


def test_utilisation_that_the_driver_does_not_tell_is_none(node: Node) -> None:
    faults = {"nvmlDeviceGetProcessUtilization": 3, "nvmlDeviceGetUtilizationRates": 3}
    node.show(replace(FIRST, processes=[StandInProcess(pid=11, mib=500)], faults=faults))
    card = node.card()
    assert card.processes == (GpuProcess(pid=11, used_mib=500, gpu_percent=None),)
    assert card.gpu_percent is None


@pytest.mark.parametrize(("temperature", "too_hot"), [(92, False), (93, True), (99, True)])
def test_a_card_is_too_hot_from_its_slowdown_temperature_on(node: Node, temperature: int, too_hot: bool) -> None:
    node.show(replace(FIRST, temperature=temperature, slowdown=93))
    assert (node.card().temperature_c, node.card().too_hot) == (temperature, too_hot)


@pytest.mark.parametrize(("margin", "too_hot"), [(5, False), (0, True), (-2, True)])
def test_a_card_that_tells_only_its_margin_is_too_hot_without_one(node: Node, margin: int, too_hot: bool) -> None:
    node.show(replace(FIRST, slowdown=None, margin=margin))
    assert node.card().too_hot is too_hot


@pytest.mark.parametrize("gone", ["nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"])
def test_temperature_is_read_by_either_name(node: Node, gone: str) -> None:
    node.show(replace(FIRST, temperature=61, faults={gone: pynvml.NVML_ERROR_FUNCTION_NOT_FOUND}))
    assert node.card().temperature_c == 61


@pytest.mark.parametrize(
    "call", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetUtilizationRates"]
)
def test_a_lost_card_keeps_its_last_numbers_and_the_other_serves(node: Node, call: str) -> None:
    node.show(replace(FIRST, used_mib=700), SECOND)
    before = node.nvml.read()
    node.show(replace(FIRST, faults={call: GPU_IS_LOST}), SECOND)
    reading = node.nvml.read()
    assert reading.fault is None
    lost, healthy = reading.cards
    assert "lost" in str(lost.fault)
    assert lost.gone
    assert replace(lost, fault=None, gone=False) == before.cards[0]
    assert healthy == before.cards[1]


def test_a_card_that_the_driver_no_longer_counts_is_still_shown_after_those_that_cuda_counts(node: Node) -> None:
    node.show(FIRST, SECOND)
    node.nvml.read()
    node.show(SECOND)
    present, vanished = node.nvml.read().cards
    assert (present.uuid, present.index, present.fault) == ("GPU-bbbb", 0, None)
    assert (vanished.uuid, vanished.index) == ("GPU-aaaa", 1)
    assert vanished.fault
    assert not vanished.gone


@pytest.mark.parametrize("call", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID", "nvmlDeviceGetPciInfo_v3"])
def test_no_card_is_gone_that_merely_cannot_be_read(node: Node, call: str) -> None:
    node.show(FIRST, SECOND)
    node.nvml.read()
    for code in set(ALL_ERRORS) - {GPU_IS_LOST, RESET_REQUIRED}:
        node.show(replace(FIRST, faults={call: code}), SECOND)
        assert not any(card.gone for card in node.nvml.read().cards), code


def test_where_it_is_in_doubt_which_card_is_lost_none_is_called_gone(node: Node) -> None:
    node.show(FIRST, SECOND)
    node.nvml.read()
    node.show(replace(FIRST, faults={"nvmlDeviceGetUUID": GPU_IS_LOST}))
    reading = node.nvml.read()
    assert [card.gone for card in reading.cards] == [False, False]
    assert all(card.fault for card in reading.cards)


def test_a_card_that_comes_back_has_no_fault(node: Node) -> None:
    node.show(replace(FIRST, faults={"nvmlDeviceGetMemoryInfo_v2": UNKNOWN}))
    assert node.card().fault
    node.show(FIRST)
    assert node.card().fault is None


def test_a_card_lost_before_it_was_ever_read_is_shown_without_numbers(node: Node) -> None:
    node.show(replace(FIRST, faults={"nvmlDeviceGetHandleByIndex_v2": GPU_IS_LOST}), SECOND)
    healthy, lost = node.nvml.read().cards
    assert (healthy.uuid, healthy.index) == ("GPU-bbbb", 0)
    assert lost.total_mib == 0
    assert lost.fault


def test_a_transient_failure_of_memory_v2_does_not_change_the_capacity(node: Node) -> None:
    node.show(FIRST)
    node.card()
    node.show(replace(FIRST, faults={"nvmlDeviceGetMemoryInfo_v2": TIMEOUT}))
    card = node.card()
    assert (card.total_mib, card.reserved_mib) == (46068, 450)
    assert card.fault


@pytest.mark.parametrize("call", CALLS_PER_CARD)
def test_no_error_of_one_card_is_raised_or_hides_the_other(node: Node, call: str) -> None:
    process = StandInProcess(pid=11, mib=500)
    first, second = replace(FIRST, processes=[process]), replace(SECOND, processes=[process])
    for code in ALL_ERRORS:
        node.show(first, second)
        assert [card.uuid for card in node.nvml.read().cards] == ["GPU-aaaa", "GPU-bbbb"]
        node.show(replace(first, faults={call: code}), second)
        reading = node.nvml.read()
        assert {card.uuid for card in reading.cards} == {"GPU-aaaa", "GPU-bbbb"}, code
        healthy = next(card for card in reading.cards if card.uuid == "GPU-bbbb")
        assert healthy.fault == reading.fault, code
        assert [p.used_mib for p in healthy.processes or ()] == [500]


@pytest.mark.parametrize("call", CALLS_OF_THE_NODE)
def test_no_error_of_the_driver_is_raised_and_the_cards_are_not_forgotten(node: Node, call: str) -> None:
    for code in ALL_ERRORS:
        node.show(FIRST)
        assert node.card().fault is None
        node.nvml.close()
        node.show(FIRST, **{call: code})
        reading = node.nvml.read()
        assert reading.fault, code
        assert [card.uuid for card in reading.cards] == ["GPU-aaaa"]
        assert reading.cards[0].fault == reading.fault


def test_a_driver_that_forgot_us_is_initialised_anew_within_the_reading(node: Node) -> None:
    node.show(FIRST)
    node.card()
    pynvml.nvmlShutdown()
    assert node.card().fault is None


def test_faults_name_the_way_out(node: Node) -> None:
    node.show(FIRST, nvmlInitWithFlags=MISMATCH)
    assert "reboot" in str(node.nvml.read().fault)
    node.show(FIRST, nvmlInitWithFlags=pynvml.NVML_ERROR_NO_PERMISSION)
    assert "/dev/nvidia" in str(node.nvml.read().fault)


ONE_READING_A_LINE = """
import json, sys
from gpuqueue.gpu.nvml import NvmlCards
cards = NvmlCards()
for _ in sys.stdin:
    reading = cards.read()
    print(json.dumps([reading.fault, reading.driver, [card.uuid for card in reading.cards]]), flush=True)
"""


class Reader:
    """NvmlCards in a process of its own, which finds the library as a daemon does."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", ONE_READING_A_LINE],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def read(self) -> tuple[str | None, str, list[str]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        fault, driver, uuids = json.loads(self._process.stdout.readline())
        return fault, driver, uuids


def test_a_driver_upgrade_under_us_is_a_fault_until_its_library_is_there_too(tmp_path: Path) -> None:
    cards, library = tmp_path / "cards", tmp_path / nvml_standin.SONAME
    library.symlink_to(nvml_standin.library_directory("570.1") / nvml_standin.SONAME)
    nvml_standin.write_cards(cards, [FIRST], driver="570.1")
    with Reader({"LD_LIBRARY_PATH": str(tmp_path), nvml_standin.CARDS_ENV: str(cards)}) as reader:
        assert reader.read() == (None, "570.1", ["GPU-aaaa"])
        nvml_standin.write_cards(cards, [FIRST], driver="580.2", faults={"nvmlDeviceGetCount_v2": MISMATCH})
        fault, _, uuids = reader.read()
        assert "upgraded" in str(fault)
        assert uuids == ["GPU-aaaa"]
        nvml_standin.write_cards(cards, [FIRST], driver="580.2")
        assert "upgraded" in str(reader.read()[0])
        library.unlink()
        library.symlink_to(nvml_standin.library_directory("580.2") / nvml_standin.SONAME)
        assert reader.read() == (None, "580.2", ["GPU-aaaa"])


def test_a_machine_without_a_driver_is_a_fault_and_gets_its_cards_when_one_is_installed(tmp_path: Path) -> None:
    cards, library = tmp_path / "cards", tmp_path / nvml_standin.SONAME
    library.write_text("not a library: hides whatever the machine has")
    nvml_standin.write_cards(cards, [FIRST])
    with Reader({"LD_LIBRARY_PATH": str(tmp_path), nvml_standin.CARDS_ENV: str(cards)}) as reader:
        fault, _, uuids = reader.read()
        assert "libnvidia-ml.so.1" in str(fault)
        assert uuids == []
        library.unlink()
        library.symlink_to(nvml_standin.library_directory() / nvml_standin.SONAME)
        assert reader.read() == (None, "580.65.06", ["GPU-aaaa"])
