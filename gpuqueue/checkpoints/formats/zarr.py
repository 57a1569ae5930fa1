"""Are the chunks of Zarr arrays whole? Chunks of nothing but the fill value may be missing by right."""

from __future__ import annotations

import math
from pathlib import Path, PurePath
from typing import Any

from gpuqueue.checkpoints.formats import jsons, zstd
from gpuqueue.checkpoints.listing import Files

MAX_CHUNK = 256 << 20


def fault(files: Files) -> str | None:
    """The first chunk that is cut off, as a sentence, or None. Larger chunks than MAX_CHUNK are not read."""
    for name in files:
        if PurePath(name).name != ".zarray":
            continue
        try:
            array = jsons.load(files[name])
            if fault := _chunks_fault(files, name.removesuffix(".zarray"), array):
                return fault
        except (ValueError, TypeError, KeyError, AttributeError):
            return f"{name} is damaged"
    return None


def _chunks_fault(files: Files, inside: str, array: dict[str, Any]) -> str | None:
    compressor = (array.get("compressor") or {}).get("id")
    raw = math.prod(array["chunks"]) * int("".join(c for c in str(array["dtype"]) if c.isdigit()) or 1)
    for name in files:
        if not name.startswith(inside) or PurePath(name).name.startswith("."):
            continue
        size = files[name].size
        if compressor is None and "bfloat16" not in str(array["dtype"]) and size != raw:
            return f"{name} has {size} bytes of {raw}"
        if compressor == "zstd" and size <= MAX_CHUNK and zstd.frame_fault(Path(files[name].path).read_bytes()):
            return f"{name} is cut off"
    return None
