"""Makes tiny checkpoint files of every format with the standard library alone."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def safetensors(path: Path, count: int = 2) -> Path:
    header = {f"w{i}": {"dtype": "F32", "shape": [4], "data_offsets": [16 * i, 16 * i + 16]} for i in range(count)}
    text = json.dumps(header).encode()
    return write(path, struct.pack("<Q", len(text)) + text + bytes(16 * count))


def torch_zip(path: Path, saved: Any = None, storages: int = 2) -> Path:
    """As torch.save writes it: an uncompressed zip with the pickle and one entry a storage."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(f"{path.stem}/data.pkl", pickle.dumps(saved if saved is not None else {}, protocol=2))
        for number in range(storages):
            archive.writestr(f"{path.stem}/data/{number}", bytes(64))
        archive.writestr(f"{path.stem}/version", "3\n")
    return write(path, buffer.getvalue())


def write(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def hf(root: Path, step: int, finished: bool = True) -> Path:
    """`checkpoint-<step>` as Trainer leaves it; half-written, it lacks what is written last."""
    folder = root / f"checkpoint-{step}"
    safetensors(folder / "model.safetensors")
    write(folder / "config.json", "{}")
    torch_zip(folder / "training_args.bin", {"save_only_model": False})
    torch_zip(folder / "optimizer.pt")
    torch_zip(folder / "scheduler.pt")
    torch_zip(folder / "rng_state.pth")
    if finished:
        write(folder / "trainer_state.json", json.dumps({"global_step": step, "log_history": [{"loss": 1.5}]}))
    return folder


def aged(path: Path, when: float) -> Path:
    """Sets the time of `path` and all below it."""
    for file in [path, *path.rglob("*")]:
        os.utime(file, (when, when))
    return path


@dataclass
class StorageInfo:
    relative_path: str
    offset: int
    length: int


@dataclass
class Metadata:
    storage_data: dict[Any, StorageInfo] = field(default_factory=dict)


def dcp(folder: Path, ranks: int = 2) -> Path:
    places = {}
    for rank in range(ranks):
        name = f"__{rank}_0.distcp"
        write(folder / name, bytes(100))
        places |= {(rank, 0): StorageInfo(name, 0, 60), (rank, 1): StorageInfo(name, 60, 40)}
    write(folder / ".metadata", pickle.dumps(Metadata(places)))
    return folder


def tensorflow(root: Path, name: str) -> Path:
    """A bundle with one data file of 50 bytes."""
    write(root / f"{name}.data-00000-of-00001", bytes(50))
    header = b"\x08\x01"
    entry = b"\x20\x0a\x28\x28"  # offset 10, size 40
    block = _block([(b"", header), (b"w", entry)])
    pointer = _varint(0) + _varint(len(block))
    table = block + bytes(5)
    index_at, index = len(table), _block([(b"w", pointer)])
    table += index + bytes(5)
    footer = _varint(0) + _varint(0) + _varint(index_at) + _varint(len(index))
    table += footer + bytes(40 - len(footer)) + struct.pack("<Q", 0xDB4775248B80FB57)
    write(root / f"{name}.index", table)
    return root / name


def _block(entries: list[tuple[bytes, bytes]]) -> bytes:
    rows = [_varint(0) + _varint(len(key)) + _varint(len(value)) + key + value for key, value in entries]
    return b"".join(rows) + struct.pack("<II", 0, 1)


def _varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def orbax(folder: Path) -> Path:
    """One item whose arrays lie in an unpacked OCDBT database: a manifest, a leaf, one value of 30 bytes."""
    times = {"commit_timestamp_nsecs": 1, "item_handlers": {"default": "handler"}}
    write(folder / "_CHECKPOINT_METADATA", json.dumps(times))
    item = folder / "default"
    write(item / "_METADATA", json.dumps({"tree_metadata": {}, "use_ocdbt": True}))
    write(item / "d" / "value", bytes(30))
    table = _varint(1) + _varint(7) + _varint(0) + b"d/value"
    leaf = b"\x00" + table + _varint(1) + _varint(1) + b"k" + _varint(30) + b"\x01" + _varint(0) + _varint(0)
    node = _framed(0x0CDB20DE, leaf)
    write(item / "d" / "tree", node)
    table = _varint(1) + _varint(6) + _varint(0) + b"d/tree"
    config = bytes(16) + _varint(0) + _varint(100) + _varint(100) + b"\x04" + _varint(0)
    versions = _varint(1) + _varint(1) + b"\x00" + _varint(0) + _varint(0) + _varint(len(node))
    versions += _varint(1) + _varint(len(node)) + _varint(30) + bytes(8)
    write(item / "manifest.ocdbt", _framed(0x0CDB3A2A, config + table + versions + _varint(0)))
    return folder


def _framed(mark: int, body: bytes) -> bytes:
    content = b"\x00\x00" + body
    return struct.pack(">I", mark) + struct.pack("<Q", len(content) + 16) + content + bytes(4)
