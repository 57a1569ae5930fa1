"""Are `.npy` and HDF5 files whole? Both say in their first bytes where they end."""

from __future__ import annotations

import ast
import math
import re
from typing import BinaryIO

MAX_HEADER = 1 << 20
_HDF5_MARK = b"\x89HDF\r\n\x1a\n"


def npy_fault(file: BinaryIO, size: int) -> str | None:
    """What is wrong with a `.npy` file, or None. Arrays of Python objects are pickles, and not checked."""
    start = file.read(12)
    if not start.startswith(b"\x93NUMPY") or len(start) < 12:
        return "is cut off within its header"
    wide = start[6] >= 2
    length = int.from_bytes(start[8 : 12 if wide else 10], "little")
    begin = (12 if wide else 10) + length
    if length > MAX_HEADER or begin > size:
        return "is cut off within its header"
    file.seek(begin - length)
    try:
        header = ast.literal_eval(file.read(length).decode("latin-1").strip())
        kind = re.fullmatch(r"[<>|=]?([a-zA-Z])(\d+)(?:\[.*\])?", str(header["descr"]))
        items = math.prod(header["shape"])
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError):
        return "has a damaged header"
    if kind is None or kind[1] == "O":
        return None
    expected = begin + items * int(kind[2]) * (4 if kind[1] == "U" else 1)
    return None if size == expected else f"has {size} bytes where its header promises {expected}"


def hdf5_fault(file: BinaryIO, size: int) -> str | None:
    """What is wrong with an HDF5 file, or None: its superblock holds the address of its end."""
    block = file.read(96)
    if not block.startswith(_HDF5_MARK) or len(block) < 48:
        return "is cut off within its first block"
    version = block[8]
    width = block[13] if version < 2 else block[9]
    # Versions 0 and 1: base, free space, end of file; versions 2 and 3: base, extension, end of file.
    start = (24 if version == 0 else 28) if version < 2 else 12
    end = int.from_bytes(block[start + 2 * width : start + 3 * width], "little")
    return None if size >= end else f"has {size} bytes of {end}"
