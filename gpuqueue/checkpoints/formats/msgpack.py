"""Is a MessagePack file (Flax) whole? Walks its values and skips over their bytes."""

from __future__ import annotations

import io
from typing import BinaryIO

MAX_VALUES = 2_000_000
# By its first byte a value has so many bytes after it,
_FIXED = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_FIXED |= {0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}
# or a length of so many bytes, which counts bytes, and so many more,
_BYTES = {0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1)}
_BYTES |= {0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0)}
# or a length of so many bytes, which counts items of so many values.
_VALUES = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}


def fault(file: BinaryIO, size: int) -> str | None:
    """What is wrong, or None: exactly one value, ending with the file."""
    wanted = 1
    for _ in range(MAX_VALUES):
        if wanted == 0:
            return None if file.tell() == size else "goes on after its last value"
        lead = file.read(1)
        if not lead:
            return "is cut off"
        skip, values = _one(file, lead[0])
        if skip is None or file.tell() + skip > size:
            return "is cut off or damaged"
        file.seek(skip, io.SEEK_CUR)
        wanted += values - 1
    return "holds too many values to check"


def _one(file: BinaryIO, lead: int) -> tuple[int | None, int]:
    """(bytes to skip, values inside) of the value that begins with `lead`; no bytes if it is none."""
    if lead < 0x80 or lead >= 0xE0:
        return 0, 0
    if lead < 0x90:
        return 0, 2 * (lead & 0x0F)
    if lead < 0xA0:
        return 0, lead & 0x0F
    if lead < 0xC0:
        return lead & 0x1F, 0
    if lead in _FIXED:
        return _FIXED[lead], 0
    if lead in _BYTES:
        width, extra = _BYTES[lead]
        return int.from_bytes(file.read(width), "big") + extra, 0
    if lead in _VALUES:
        width, each = _VALUES[lead]
        return 0, each * int.from_bytes(file.read(width), "big")
    return None, 0
