"""Is a safetensors file whole? Reads its header only."""

from __future__ import annotations

import json
from pathlib import Path

MAX_HEADER = 100_000_000  # the format's own limit


def fault(path: str, size: int) -> str | None:
    """What is wrong with the file, or None: the tensors' offsets must tile the file to its last byte.

    Bytes that changed in place go unnoticed: the format carries no checksum.
    """
    with Path(path).open("rb") as file:
        prefix = file.read(8)
        if len(prefix) < 8:
            return "is cut off within its header"
        length = int.from_bytes(prefix, "little")
        if length > MAX_HEADER or 8 + length > size:
            return "is cut off within its header"
        try:
            header = json.loads(file.read(length))
            spans = sorted(
                (int(tensor["data_offsets"][0]), int(tensor["data_offsets"][1]))
                for name, tensor in header.items()
                if name != "__metadata__"
            )
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
            return "has a damaged header"
    end = 0
    for start, stop in spans:
        if start != end or stop < start:
            return "has a header whose tensors do not join up"
        end = stop
    expected = 8 + length + end
    if size != expected:
        return f"has {size} bytes where its header promises {expected}"
    return None
