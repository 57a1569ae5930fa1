"""Inside a job with --cap: tells PyTorch and TensorFlow how much of the card is theirs (P5), when they are imported,
and writes down at the end what PyTorch's allocator held at most.

Runs in the job's own Python (3.8 or newer), stdlib only. It never initialises CUDA, never wins over what the job sets
itself, and never breaks the job: what fails is one line on the standard error.

    GQ_CAP_MIB   what the framework's allocator may hold on each card
    GQ_REPORT    where the report goes: {"torch": {"version", "peak_allocated_mib", "peak_reserved_mib", "parts",
                 "parts_fault"}}, the last two where gpuqueue_parts counted something, and where it failed
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

MIB = 1024 * 1024
ALLOCATOR_OPTIONS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")


def install() -> None:
    """Waits for the frameworks to be imported; does nothing where the job has no cap."""
    cap = os.environ.get("GQ_CAP_MIB", "")
    if cap.isdigit() and int(cap) > 0:
        cap_mib = int(cap)
        importlib.import_module("gpuqueue_parts")  # while this folder is on the module path
        waiting = {"torch": lambda module: _torch(module, cap_mib), "tensorflow": lambda _: _tensorflow(cap_mib)}
        sys.meta_path.insert(0, AfterImport(waiting))


class AfterImport:
    """A finder that finds nothing itself: it lets a loader call back once the module is loaded, each name once, and
    leaves `sys.meta_path` after the last."""

    def __init__(self, waiting: dict[str, Callable[[ModuleType], None]]) -> None:
        self._waiting = waiting

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._waiting:
            return None
        spec = self._found_by_others(name, path, target)
        if spec is None or spec.loader is None:
            return spec  # it is not there, and may be later on another path
        then = self._waiting.pop(name)
        if not self._waiting and self in sys.meta_path:
            sys.meta_path.remove(self)
        try:
            _call_after(spec.loader, name, then)
        except Exception as error:  # noqa: BLE001 - a loader of an unknown kind; the import itself goes on
            _say(f"{name} is not capped: {error!r}")
        return spec

    def _found_by_others(self, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if finder is self or find is None else find(name, path, target)
            if spec is not None:
                return spec
        return None


def _call_after(loader: Any, name: str, then: Callable[[ModuleType], None]) -> None:
    """Around one call of this loader, which is then as it was: whoever looks at it later sees the real one."""
    load = loader.exec_module

    def load_and_call(module: ModuleType) -> None:
        del loader.exec_module
        load(module)
        try:
            then(module)
        except Exception as error:  # noqa: BLE001 - the module is imported; a cap must not undo that
            _say(f"{name} is not capped: {error!r}")

    loader.exec_module = load_and_call


# -- PyTorch -----------------------------------------------------------------------------------------------------


def _torch(torch: Any, cap_mib: int) -> None:
    """Queues the cap behind the initialisation of CUDA, as torch does with its own calls (manual_seed and the like)."""
    if os.environ.get("GQ_REPORT"):
        _watch(torch, os.environ["GQ_REPORT"])
    if any("per_process_memory_fraction" in os.environ.get(name, "") for name in ALLOCATOR_OPTIONS):
        _say("PyTorch has a per_process_memory_fraction in its environment: that one holds")
        return
    torch.cuda.set_per_process_memory_fraction  # noqa: B018 - PyTorch 1.8 or newer, else the caller says so
    torch.cuda._lazy_call(lambda: _cap_devices(torch, cap_mib))


def _cap_devices(torch: Any, cap_mib: int) -> None:
    """Called by torch itself once CUDA is there. A worker of torchrun caps its own card alone: to cap one is to make a
    context on it."""
    try:
        count, rank = torch.cuda.device_count(), os.environ.get("LOCAL_RANK", "")
        devices = [int(rank)] if rank.isdigit() and int(rank) < count else range(count)
        for device in devices:
            total = torch.cuda.get_device_properties(device).total_memory
            with torch.cuda.device(device):
                torch.cuda.set_per_process_memory_fraction(min(cap_mib * MIB / total, 1.0), device)
    except Exception as error:  # noqa: BLE001 - raised here, it would fail the job's own first use of CUDA
        _say(f"PyTorch is not capped: {error!r}")


def _watch(torch: Any, path: str) -> None:
    import atexit

    try:
        watch = sys.modules["gpuqueue_parts"].Watch(torch)
        watch.start()
        atexit.register(_report, torch, path, watch)
    except Exception as error:  # noqa: BLE001 - the cap comes next, and matters more
        _say(f"no report of PyTorch's memory: {error!r}")


def _report(torch: Any, path: str, watch: Any) -> None:
    """What the caching allocator held at most on the fullest card, of all the job's processes that reported."""
    try:
        if not torch.cuda.is_initialized():
            return
        devices = range(torch.cuda.device_count())
        fullest = max(devices, key=torch.cuda.max_memory_allocated)
        allocated = torch.cuda.max_memory_allocated(fullest)
        reserved = max(torch.cuda.max_memory_reserved(device) for device in devices)
        found = {"peak_allocated_mib": -(-allocated // MIB), "peak_reserved_mib": -(-reserved // MIB)}
        parts = watch.parts_mib(fullest, found["peak_allocated_mib"])
        told = {"parts": parts, "parts_fault": watch.fault}
        _keep({"version": str(torch.__version__), **found, **{name: it for name, it in told.items() if it}}, path)
    except Exception as error:  # noqa: BLE001 - the job has ended well or badly, and that must stay so
        _say(f"no report of PyTorch's memory: {error!r}")


def _keep(found: dict[str, Any], path: str) -> None:
    import json

    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs every Python start of the job
            before = json.load(file)["torch"]
    except (OSError, ValueError, KeyError, TypeError):
        before = {}
    for name in ("peak_allocated_mib", "peak_reserved_mib"):
        if isinstance(before, dict) and isinstance(before.get(name), int):
            found[name] = max(found[name], before[name])
    parts = before.get("parts") if isinstance(before, dict) else None
    if isinstance(parts, dict) and _sum(parts) >= _sum(found.get("parts", {})):
        found["parts"] = parts  # of the process that held most
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump({"torch": found}, file)
    os.replace(temporary, path)  # noqa: PTH105


def _sum(parts: dict[str, Any]) -> int:
    return sum(size for size in parts.values() if isinstance(size, int))


# -- TensorFlow --------------------------------------------------------------------------------------------------


def _tensorflow(cap_mib: int) -> None:
    """Just before TensorFlow takes its cards: earlier, a script that asks for memory growth would be refused."""
    context = sys.modules["tensorflow.python.eager.context"].context()
    initialise = context.ensure_initialized

    def cap_and_initialise() -> None:
        del context.ensure_initialized
        try:
            _limit_logical_devices(cap_mib)
        except Exception as error:  # noqa: BLE001 - raised here, it would fail the job's first operation
            _say(f"TensorFlow is not capped: {error!r}")
        initialise()

    context.ensure_initialized = cap_and_initialise


def _limit_logical_devices(cap_mib: int) -> None:
    config = sys.modules["tensorflow"].config
    for card in config.list_physical_devices("GPU"):
        if config.get_logical_device_configuration(card):
            _say("TensorFlow has logical devices of its own: those hold")
        elif config.experimental.get_memory_growth(card):
            _say("TensorFlow is not capped: it knows either memory growth, which this job asked for, or a limit")
        else:
            limit = config.LogicalDeviceConfiguration(memory_limit=cap_mib)
            config.set_logical_device_configuration(card, [limit])


def _say(sentence: str) -> None:
    sys.stderr.write(f"gq: {sentence}\n")
