"""Reads a TensorFlow checkpoint's `.index`: a sorted table of tensors and where their bytes lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_INDEX = 64 << 20
_FOOTER = 48
_MAGIC = 0xDB4775248B80FB57
_BLOCK_TRAILER = 5  # compression type and checksum


class TableError(ValueError):
    """The table is cut off or damaged; the message ends a sentence that begins with the file's name."""


@dataclass(frozen=True, slots=True)
class Ends:
    """How many data files there are, and how many bytes each must have at least."""

    count: int
    shards: dict[int, int]


def bundle_ends(path: str) -> Ends:
    """What the index at `path` refers to. TableError if it is cut off or damaged, OSError if unreadable."""
    with Path(path).open("rb") as file:
        data = file.read(MAX_INDEX + 1)
    if len(data) > MAX_INDEX:
        raise TableError("is too large to check")
    if len(data) < _FOOTER or int.from_bytes(data[-8:], "little") != _MAGIC:
        raise TableError("is cut off: the mark at its end is missing")
    try:
        return _ends(data)
    except IndexError:
        raise TableError("is damaged") from None


def _ends(data: bytes) -> Ends:
    _, at = _handle(data, len(data) - _FOOTER)
    index, _ = _handle(data, at)
    count = 1
    shards: dict[int, int] = {}
    for _, pointer in _block(data, *index):
        block, _ = _handle(pointer, 0)
        for key, value in _block(data, *block):
            fields = _message(value)
            if not key:
                count = fields.get(1, 1)
                continue
            shard = fields.get(3, 0)
            shards[shard] = max(shards.get(shard, 0), fields.get(4, 0) + fields.get(5, 0))
    return Ends(count, shards)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise TableError("is damaged")


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    offset, at = _varint(data, at)
    size, at = _varint(data, at)
    return (offset, size), at


def _block(data: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """The entries of one block; each key shares a prefix with the one before it."""
    if offset + size + _BLOCK_TRAILER > len(data):
        raise TableError("is damaged: a block lies beyond its end")
    if data[offset + size] != 0:
        raise TableError("is compressed, which cannot be checked")
    block = data[offset : offset + size]
    restarts = int.from_bytes(block[-4:], "little")
    end, at, key = len(block) - 4 * (restarts + 1), 0, b""
    while at < end:
        shared, at = _varint(block, at)
        fresh, at = _varint(block, at)
        length, at = _varint(block, at)
        key = key[:shared] + block[at : at + fresh]
        at += fresh
        yield key, block[at : at + length]
        at += length


def _message(data: bytes) -> dict[int, int]:
    """The whole-number fields of a protocol buffer, by number."""
    fields: dict[int, int] = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            fields[tag >> 3], at = _varint(data, at)
        elif kind == 2:
            length, at = _varint(data, at)
            at += length
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise TableError("is damaged")
    return fields
