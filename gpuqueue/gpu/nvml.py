"""NVIDIA cards as NVML reads them: the sole importer of pynvml.

Nothing that the driver does may stop the daemon or a job (H1), so every NVML error ends in one of three places:
an answer that this card or driver cannot give is None; a card that cannot be read keeps its last numbers and gets
a fault; a driver that cannot be talked to makes a fault of the whole reading, with the cards as last known. In
the last case the library is let go of and loaded anew, because a driver upgrade leaves the old one in memory.
"""

import _ctypes
import contextlib
import importlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import pynvml  # type: ignore[import-untyped]

from gpuqueue.core.readings import CardReading, GpuProcess, NodeReading

log = logging.getLogger(__name__)

_MIB = 1024 * 1024
_VANISHED = "the driver no longer lists this card"

# Faults of the library or the driver, not of one card.
_NODE_FAULTS = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
# The card is gone: it answers nothing more, whatever is asked, and no program on it survives. The rest may pass.
_CARD_FAULTS = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED})
_NO_SAMPLES = frozenset({pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_NO_DATA})
_NO_SUCH_QUESTION = frozenset(
    {
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    }
)

_SENTENCES = {
    pynvml.NVML_ERROR_UNINITIALIZED: "NVML is not initialised",
    pynvml.NVML_ERROR_NOT_SUPPORTED: "the card does not tell its memory",
    pynvml.NVML_ERROR_NO_PERMISSION: "no permission to read it: look at the owner and mode of /dev/nvidia*",
    pynvml.NVML_ERROR_NOT_FOUND: "the driver does not find it",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA kernel module is not loaded",
    pynvml.NVML_ERROR_TIMEOUT: "the driver did not answer in time",
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "libnvidia-ml.so.1 is not installed: no NVIDIA driver on this machine",
    pynvml.NVML_ERROR_GPU_IS_LOST: "the card is lost: it fell off the bus or stopped answering",
    pynvml.NVML_ERROR_RESET_REQUIRED: "the card needs a reset",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "driver and library have different versions: the driver was upgraded; reload its kernel module or reboot"
    ),
}


class NvmlCards:
    """Satisfies engine.ports.Cards."""

    simulated = False

    def __init__(self) -> None:
        self._initialised = False
        self._driver = ""
        self._known: dict[str, CardReading] = {}  # by UUID, as last read without a fault
        self._sampled_until_us: dict[str, int] = {}

    def read(self) -> NodeReading:
        """See Cards.read. A process's `gpu_percent` is its mean since the reading before."""
        error = None
        for _ in ("as it is", "with the library loaded anew"):
            try:
                return self._read()
            except pynvml.NVMLError as raised:
                error = raised
                self._start_over()
        fault = _sentence(error)
        lost = sorted(self._known.values(), key=lambda card: card.index)
        return NodeReading(cards=tuple(replace(card, fault=fault) for card in lost), fault=fault, driver=self._driver)

    def job_environment(self) -> Mapping[str, str]:
        return {}

    def close(self) -> None:
        if self._initialised:
            with contextlib.suppress(pynvml.NVMLError):  # a dead driver cannot be said goodbye to
                pynvml.nvmlShutdown()
            self._initialised = False

    def _start_over(self) -> None:
        """Lets go of the library, so that the next call loads the file that is installed by then."""
        self.close()
        library = pynvml.nvmlLib
        if library is not None:
            _ctypes.dlclose(library._handle)
            importlib.reload(pynvml)  # it keeps the library and its functions in globals

    def _read(self) -> NodeReading:
        """Raises NVMLError where the fault is the node's."""
        if not self._initialised:
            pynvml.nvmlInit()
            self._initialised = True
        self._driver = pynvml.nvmlSystemGetDriverVersion()
        cards: dict[str, CardReading] = {}
        unreadable: list[Any] = []
        for number in range(pynvml.nvmlDeviceGetCount()):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(number)
                uuid = pynvml.nvmlDeviceGetUUID(handle)
                cards[uuid] = self._read_card(handle, uuid)
            except pynvml.NVMLError as error:
                if error.value in _NODE_FAULTS:
                    raise
                unreadable.append(error)
        ranked = _ranked([*cards.values(), *self._missing(cards, unreadable)])
        self._known.update({card.uuid: card for card in ranked if card.fault is None})
        return NodeReading(cards=ranked, driver=self._driver)

    def _missing(self, cards: Mapping[str, CardReading], unreadable: Sequence[Any]) -> Iterable[CardReading]:
        """The cards that the driver counted but would not identify, and those that it no longer counts. Which of
        the known ones they are follows from which were not read; one that was never known has no number."""
        known = sorted((c for uuid, c in self._known.items() if uuid not in cards), key=lambda card: card.index)
        # A job dies with its card (H1): only where it is beyond doubt which cards are called lost.
        gone = len(known) == len(unreadable) and all(error.value in _CARD_FAULTS for error in unreadable)
        for number, (card, error) in enumerate(zip_longest(known, unreadable)):
            fault = _VANISHED if error is None else _sentence(error)
            yield replace(card or _nameless(f"unreadable-{number}", ""), fault=fault, gone=gone)

    def _read_card(self, handle: Any, uuid: str) -> CardReading:
        try:
            pci_bus_id = _text(pynvml.nvmlDeviceGetPciInfo(handle).busId).upper()
        except pynvml.NVMLError as error:
            return self._faulty(error, uuid, "")
        try:
            return self._measure(handle, uuid, pci_bus_id)
        except pynvml.NVMLError as error:
            return self._faulty(error, uuid, pci_bus_id)

    def _faulty(self, error: Any, uuid: str, pci_bus_id: str) -> CardReading:
        if error.value in _NODE_FAULTS:
            raise error
        known = self._known.get(uuid) or _nameless(uuid, pci_bus_id)
        return replace(known, fault=_sentence(error), gone=error.value in _CARD_FAULTS)

    def _measure(self, handle: Any, uuid: str, pci_bus_id: str) -> CardReading:
        total_mib, reserved_mib, used_mib = _memory_mib(handle)
        rates = _ask("nvmlDeviceGetUtilizationRates", handle)
        temperature_c = _temperature_c(handle)
        return CardReading(
            uuid=uuid,
            index=0,  # ranked when all are read
            name=_ask("nvmlDeviceGetName", handle) or "NVIDIA card",
            pci_bus_id=pci_bus_id,
            total_mib=total_mib,
            reserved_mib=reserved_mib,
            used_mib=used_mib,
            processes=self._processes(handle, uuid),
            gpu_percent=None if rates is None else int(rates.gpu),
            temperature_c=temperature_c,
            too_hot=_too_hot(handle, temperature_c),
            minor=_ask("nvmlDeviceGetMinorNumber", handle),
        )

    def _processes(self, handle: Any, uuid: str) -> tuple[GpuProcess, ...] | None:
        """By pid. A process that computes and draws is listed twice by NVML, with the same memory."""
        compute = _ask("nvmlDeviceGetComputeRunningProcesses_v3", handle)
        if compute is None:
            compute = _ask("nvmlDeviceGetComputeRunningProcesses_v2", handle)  # drivers before 510
        if compute is None:
            return None
        graphics = _ask("nvmlDeviceGetGraphicsRunningProcesses_v3", handle)
        used_mib: dict[int, int | None] = {}
        for process in [*compute, *(graphics or ())]:
            mib = None if process.usedGpuMemory is None else -(-int(process.usedGpuMemory) // _MIB)
            before = used_mib.get(process.pid)
            used_mib[process.pid] = before if mib is None else max(mib, before or 0)
        percent = self._gpu_percent(handle, uuid)
        return tuple(
            GpuProcess(pid=pid, used_mib=mib, gpu_percent=None if percent is None else percent.get(pid, 0))
            for pid, mib in sorted(used_mib.items())
        )

    def _gpu_percent(self, handle: Any, uuid: str) -> dict[int, int] | None:
        """Mean utilisation by pid since the reading before; who is not in it did nothing. None where hidden."""
        since_us = self._sampled_until_us.get(uuid, 0)
        try:
            samples = pynvml.nvmlDeviceGetProcessUtilization(handle, since_us)
        except pynvml.NVMLError as error:
            if error.value in _NODE_FAULTS | _CARD_FAULTS:
                raise
            return {} if error.value in _NO_SAMPLES else None
        by_pid: dict[int, list[int]] = {}
        for sample in samples:
            if sample.timeStamp > since_us:  # the array may end in samples that were never filled in
                by_pid.setdefault(sample.pid, []).append(min(sample.smUtil, 100))
                self._sampled_until_us[uuid] = max(self._sampled_until_us.get(uuid, 0), sample.timeStamp)
        return {pid: round(sum(percents) / len(percents)) for pid, percents in by_pid.items()}


def _ask(function: str, handle: Any, *arguments: Any) -> Any:
    """The answer, or None where this card, driver or pynvml has none, or only root would get it."""
    call = getattr(pynvml, function, None)
    if call is None:
        return None
    try:
        return call(handle, *arguments)
    except pynvml.NVMLError as error:
        if error.value in _NODE_FAULTS | _CARD_FAULTS:
            raise
        log.debug("%s: %s", function, error)
        return None


def _memory_mib(handle: Any) -> tuple[int, int, int]:
    """(total, reserved, used without reserved). Before driver 510 what is reserved is not told apart: it is in
    used there (M2). Rounded so that no MiB is promised that is not there."""
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)
        reserved = memory.reserved
    except pynvml.NVMLError as error:
        if error.value not in _NO_SUCH_QUESTION:
            raise
        memory, reserved = pynvml.nvmlDeviceGetMemoryInfo(handle), 0
    return int(memory.total) // _MIB, -(-int(reserved) // _MIB), -(-int(memory.used) // _MIB)


def _temperature_c(handle: Any) -> int | None:
    for function in ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"):  # the old name ends with CUDA 14
        answer = _ask(function, handle, pynvml.NVML_TEMPERATURE_GPU)
        if answer is not None:
            return int(answer)
    return None


def _too_hot(handle: Any, temperature_c: int | None) -> bool:
    """Newer cards do not tell their slowdown temperature, only how far they are from it."""
    slowdown_c = _ask("nvmlDeviceGetTemperatureThreshold", handle, pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
    if slowdown_c and temperature_c is not None:
        return temperature_c >= int(slowdown_c)
    margin_c = _ask("nvmlDeviceGetMarginTemperature", handle)
    return margin_c is not None and int(margin_c) <= 0


def _ranked(cards: Iterable[CardReading]) -> tuple[CardReading, ...]:
    """In PCI order, which is what an index means to CUDA (P2). Cards that the driver no longer counts come last,
    since CUDA does not count them either."""

    def place(card: CardReading) -> tuple[bool, bool, str]:
        return card.fault == _VANISHED, card.pci_bus_id == "", card.pci_bus_id

    return tuple(replace(card, index=index) for index, card in enumerate(sorted(cards, key=place)))


def _nameless(uuid: str, pci_bus_id: str) -> CardReading:
    """A card that was never read: it is there, and that is all."""
    return CardReading(
        uuid=uuid,
        index=0,
        name="unreadable card",
        pci_bus_id=pci_bus_id,
        total_mib=0,
        reserved_mib=0,
        used_mib=0,
        processes=None,
    )


def _sentence(error: Any) -> str:
    said = _SENTENCES.get(error.value)
    return f"{said} (NVML error {error.value})" if said else f"NVML error {error.value}: {error}"


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
