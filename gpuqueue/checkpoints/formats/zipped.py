"""Is a zip archive (torch.save, .npz, .keras) whole? Reads its directory and the entries' headers only."""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

LOCAL_HEADER = struct.Struct("<4s5H3I2H")
MAX_MEMBER = 64 << 20
# All that zipfile raises for bytes that are no archive, or one that it cannot unpack.
_BROKEN = (zipfile.BadZipFile, struct.error, zlib.error, ValueError, RuntimeError, EOFError, OverflowError)


def fault(path: str) -> str | None:
    """What is wrong with the archive, or None: a directory at the end, and every entry where it says.

    Checksums of the contents are not computed: that would read gigabytes at every look.
    """
    try:
        with Path(path).open("rb") as file, zipfile.ZipFile(file) as archive:
            return _entries_fault(file, archive)
    except _BROKEN:
        return "is cut off: the zip directory at its end is missing or damaged"


def _entries_fault(file: BinaryIO, archive: zipfile.ZipFile) -> str | None:
    entries = sorted(archive.infolist(), key=lambda info: info.header_offset)
    if not entries:
        return "is an empty zip archive"
    end = 0
    if entries[0].header_offset != 0:
        return "has lost bytes at its start or between its entries"
    for info in entries:
        if info.header_offset < end:
            return "has zip entries that overlap"
        file.seek(info.header_offset)
        raw = file.read(LOCAL_HEADER.size)
        if len(raw) < LOCAL_HEADER.size or raw[:4] != b"PK\x03\x04":
            return f"is damaged: no entry where its directory says {info.filename} is"
        fields = LOCAL_HEADER.unpack(raw)
        end = info.header_offset + LOCAL_HEADER.size + fields[9] + fields[10] + info.compress_size
    if end > archive.start_dir:
        return "is damaged: its last entry runs into the zip directory"
    return None


def read_member(path: str, suffix: str) -> bytes | None:
    """The first entry of MAX_MEMBER bytes at most whose name ends in `suffix`; None if there is none."""
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if info.filename.endswith(suffix) and info.file_size <= MAX_MEMBER:
                    return archive.read(info)
    except _BROKEN:
        return None
    return None
