"""Follows an OCDBT database (Orbax keeps its arrays in one) from its manifest to the last byte it refers to.

Manifest and tree nodes have the same frame: a mark, the length, the (usually zstd-packed) body, a checksum.
Names of data files are kept in a table at the front of each body, relative to the directory of the node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath

from gpuqueue.checkpoints.formats import zstd
from gpuqueue.checkpoints.listing import Files

MANIFEST = "manifest.ocdbt"
MAX_NODES = 20_000
_MANIFEST_MARK = 0x0CDB3A2A
_NODE_MARK = 0x0CDB20DE
_FRAME = 16  # mark, length, checksum


class OcdbtError(ValueError):
    """The database is incomplete; the message is the sentence that says where."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """A run of bytes in a data file; `height` is that of the tree node it holds, None for a plain value."""

    base: str
    name: str
    offset: int
    length: int
    height: int | None


class _Cursor:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self.data):
            raise OcdbtError("it ends early")
        self.at += count
        return self.data[self.at - count : self.at]

    def byte(self) -> int:
        return self.take(1)[0]

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise OcdbtError("a number in it is too large")

    def varints(self, count: int) -> list[int]:
        return [self.varint() for _ in range(count)]


def fault(files: Files, manifest: str) -> str | None:
    """What is missing or cut off of the database with this manifest, as a sentence, or None.

    Without zstd on the machine only the manifest itself is checked.
    """
    inside = manifest.removesuffix(MANIFEST)
    try:
        body = _body(Path(files[manifest].path).read_bytes(), _MANIFEST_MARK, manifest)
        pending = list(_roots(_Cursor(body))) if body is not None else []
        for _ in range(MAX_NODES):
            if not pending:
                return None
            pending += _below(files, inside, pending.pop())
    except OcdbtError as error:
        return str(error)
    except (zstd.ZstdError, IndexError):
        return f"{manifest} is damaged"
    return f"{manifest} refers to more than {MAX_NODES} nodes, too many to check"


def _below(files: Files, inside: str, node: _Piece) -> list[_Piece]:
    """Checks that a tree node and the values that it refers to are there; the nodes below it."""
    path = _present(files, inside, node)
    with Path(path).open("rb") as file:
        file.seek(node.offset)
        body = _body(file.read(node.length), _NODE_MARK, f"{inside}{node.base}{node.name}")
    found = _node(_Cursor(body), node.base) if body is not None else []
    for piece in found:
        _present(files, inside, piece)
    return [piece for piece in found if piece.height is not None]


def _present(files: Files, inside: str, piece: _Piece) -> str:
    """The path of the file that holds the piece in full."""
    name = f"{inside}{piece.base}{piece.name}"
    entry = files.entries.get(name)
    if entry is None:
        raise OcdbtError(f"{name} is missing: the database refers to it")
    if entry.size < piece.offset + piece.length:
        raise OcdbtError(f"{name} has {entry.size} bytes of {piece.offset + piece.length}")
    return entry.path


def _body(data: bytes, mark: int, name: str) -> bytes | None:
    if len(data) < _FRAME or int.from_bytes(data[:4], "big") != mark:
        raise OcdbtError(f"{name} is damaged: its mark is missing")
    if int.from_bytes(data[4:12], "little") != len(data):
        raise OcdbtError(f"{name} has {len(data)} bytes of {int.from_bytes(data[4:12], 'little')}")
    cursor = _Cursor(data[:-4])
    cursor.take(12)
    cursor.varint()  # version of the format
    packed = cursor.varint()
    rest = cursor.data[cursor.at :]
    return zstd.decompress(rest) if packed else rest


def _roots(cursor: _Cursor) -> Iterator[_Piece]:
    """The root of every generation that the manifest holds itself."""
    cursor.take(16)  # unique id
    if cursor.varint() != 0:
        return  # generations in numbered manifests, which Orbax does not write
    cursor.varints(2)
    cursor.byte()
    if cursor.varint():
        cursor.take(4)
    table = _table(cursor)
    count = cursor.varint()
    cursor.varints(count)
    heights = cursor.take(count)
    yield from _pieces(cursor, table, "", list(heights))


def _node(cursor: _Cursor, base: str) -> list[_Piece]:
    height = cursor.byte()
    table = _table(cursor)
    count = cursor.varint()
    cursor.varints(count - 1)
    suffixes = cursor.varints(count)
    if height:
        cursor.varints(count)
    cursor.take(sum(suffixes))
    if height:
        return list(_pieces(cursor, table, base, [height - 1] * count))
    lengths = cursor.varints(count)
    outside = [length for length, kind in zip(lengths, cursor.take(count), strict=True) if kind]
    names = cursor.varints(len(outside))
    offsets = cursor.varints(len(outside))
    return [
        _Piece(base + table[name][0], table[name][1], offset, length, None)
        for name, offset, length in zip(names, offsets, outside, strict=True)
    ]


def _pieces(cursor: _Cursor, table: list[tuple[str, str]], base: str, heights: list[int]) -> Iterator[_Piece]:
    names, offsets, lengths = (cursor.varints(len(heights)) for _ in range(3))
    for name, offset, length, height in zip(names, offsets, lengths, heights, strict=True):
        # An empty generation points to nowhere: no length, or an offset of all ones.
        if length and offset < 2**63:
            yield _Piece(base + table[name][0], table[name][1], offset, length, height)


def _table(cursor: _Cursor) -> list[tuple[str, str]]:
    """The data files as (directory of the database they belong to, name in it); names share prefixes."""
    count = cursor.varint()
    prefixes = [0, *cursor.varints(count - 1)][:count]
    suffixes = cursor.varints(count)
    bases = cursor.varints(count)
    table: list[tuple[str, str]] = []
    whole = b""
    for prefix, suffix, base in zip(prefixes, suffixes, bases, strict=True):
        whole = whole[:prefix] + cursor.take(suffix)
        try:
            table.append((whole[:base].decode(), whole[base:].decode()))
        except UnicodeDecodeError:
            raise OcdbtError("a data file has an unreadable name") from None
    return table


def manifests(files: Files) -> list[str]:
    return [name for name in files if PurePath(name).name == MANIFEST]
