"""What a helper inside the job reports of PyTorch's memory. The job's owner can write anything there: numbers in
range are shown as what was reported, everything else is as good as nothing."""

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from gpuqueue.backends.owned import open_owned
from gpuqueue.wire.errors import GpuqueueError
from gpuqueue.wire.jobs import TensorParts, TorchPeak
from gpuqueue.wire.rundir import REPORT
from gpuqueue.wire.units import MAX_VRAM_MIB

MAX_BYTES = 16 * 1024


def torch_peak(run_dir: Path) -> TorchPeak | None:
    """The `torch` part of report.json: {"torch": {"peak_allocated_mib": …, "peak_reserved_mib": …, "context_mib": …,
    "parts": the fields of TensorParts}}, the last two optional. None where it is missing, or is no such report."""
    try:
        descriptor = open_owned(run_dir, REPORT)
    except (OSError, GpuqueueError):
        return None
    with os.fdopen(descriptor, "rb") as file:
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        return None
    try:
        said = json.loads(text)["torch"]
        allocated, reserved = said["peak_allocated_mib"], said["peak_reserved_mib"]
        context, parts = said.get("context_mib"), _parts(said.get("parts"))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if not (_is_size(allocated) and _is_size(reserved) and (context is None or _is_size(context))):
        return None
    return TorchPeak(allocated_mib=allocated, reserved_mib=reserved, context_mib=context, parts=parts)


def _parts(said: Any) -> TensorParts | None:
    """Raises KeyError or TypeError for what is neither nothing nor all of them."""
    if said is None:
        return None
    sizes = {field.name: said[field.name] for field in fields(TensorParts)}
    if not all(_is_size(size) for size in sizes.values()):
        raise TypeError("a part is not a size")
    return TensorParts(**sizes)


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_VRAM_MIB
