"""Orbax: `<step>/`, written under a temporary name and renamed when complete, or marked commit_success.txt.

An item's arrays lie in an OCDBT database or in Zarr chunks, which are followed to the last byte as well.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from gpuqueue.checkpoints.formats import jsons, ocdbt, zarr
from gpuqueue.checkpoints.listing import Files

NAME = "orbax"
METADATA = "_CHECKPOINT_METADATA"
TREE = "_METADATA"
COMMITTED = "commit_success.txt"
_JSON = frozenset({METADATA, TREE, "_sharding", ".zarray", "metadata"})


def claims(files: Files) -> bool:
    if files.is_parts:
        return False
    if METADATA in files or COMMITTED in files:
        return True
    return any(PurePath(name).name in (TREE, ocdbt.MANIFEST) and name.count("/") <= 1 for name in files)


def completed_at(files: Files) -> float | None:
    return max((files[mark].mtime for mark in (METADATA, COMMITTED) if mark in files), default=None)


def fault(files: Files, step: int | None) -> str | None:
    """Every item is there, every tree's arrays are there, every byte that a database refers to is there."""
    metadata = _read(files, METADATA)
    if metadata is None and COMMITTED not in files:
        return f"{METADATA} is missing or damaged: the save was not finished"
    if metadata is not None and metadata.get("commit_timestamp_nsecs", 0) is None:
        return f"{METADATA} holds no commit time: the save was not finished"
    handlers = metadata.get("item_handlers") if metadata is not None else None
    for item in handlers if isinstance(handlers, dict) else ():
        if not any(name.startswith(f"{item}/") for name in files):
            return f"the item {item} is missing"
    for name in files:
        base = PurePath(name).name
        if files[name].size == 0 and base != COMMITTED:
            return f"{name} is empty"
        is_json = base in _JSON or PurePath(name).parent.name == "array_metadatas"
        if is_json and _read(files, name) is None:
            return f"{name} is not valid JSON: cut off or damaged"
        if base == TREE and not _arrays_beside(files, name):
            return f"{ocdbt.MANIFEST} is missing beside {name}"
    return _bytes_fault(files)


def _arrays_beside(files: Files, tree: str) -> bool:
    inside = tree.removesuffix(TREE)
    return any(
        name == f"{inside}{ocdbt.MANIFEST}" or (name.startswith(inside) and name.endswith((".zarray", "zarr.json")))
        for name in files
    )


def _bytes_fault(files: Files) -> str | None:
    for name in ocdbt.manifests(files):
        if fault := ocdbt.fault(files, name):
            return fault
    return zarr.fault(files)


def _read(files: Files, name: str) -> dict[str, Any] | None:
    """The JSON object in a file, {} for other JSON; None if it cannot be read."""
    if name not in files:
        return None
    try:
        value = jsons.load(files[name])
    except jsons.JsonError:
        return None
    return value if isinstance(value, dict) else {}
