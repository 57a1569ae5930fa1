"""torch.distributed.checkpoint (DCP): `__<rank>_<n>.distcp` files and, renamed into place last, `.metadata`.

torchtitan, FSDP in Lightning, Accelerate and Trainer, and Megatron's torch_dist write this too, the latter
three in a directory of their own within the checkpoint.
"""

from __future__ import annotations

import functools
from pathlib import Path, PurePath

from gpuqueue.checkpoints.formats import pickled
from gpuqueue.checkpoints.listing import Entry, Files

NAME = "dcp"
LAST = ".metadata"


def claims(files: Files) -> bool:
    return LAST in files or any(name.endswith(".distcp") and "/" not in name for name in files)


def completed_at(files: Files) -> float | None:
    return files[LAST].mtime if LAST in files else None


def fault(files: Files, step: int | None) -> str | None:
    return None  # `sharded_fault` is asked for every layout


def sharded_fault(files: Files) -> str | None:
    """For every directory with `.distcp` files: `.metadata` is there, and all that it refers to."""
    folders = {str(PurePath(name).parent) for name in files if name.endswith((".distcp", LAST))}
    for folder in sorted(folders):
        inside = "" if folder == "." else f"{folder}/"
        if f"{inside}{LAST}" not in files:
            return f"{inside}{LAST} is missing: it is written last, so the save was not finished"
        ends = referenced(files[f"{inside}{LAST}"])
        if isinstance(ends, str):
            return f"{inside}{LAST} {ends}"
        for name, end in ends:
            there = files.entries.get(f"{inside}{name}")
            if there is None:
                return f"{inside}{name} is missing: {LAST} refers to it"
            if there.size < end:
                return f"{inside}{name} has {there.size} bytes where {LAST} refers to {end}"
    return None


@functools.lru_cache(maxsize=256)
def referenced(entry: Entry) -> tuple[tuple[str, int], ...] | str:
    """Each file that a `.metadata` refers to, and the bytes it must have; what is wrong if it is damaged."""
    if entry.size > pickled.MAX_LOADED:
        return f"has {entry.size} bytes, too many to check"
    try:
        metadata = pickled.load(Path(entry.path).read_bytes())
    except pickled.PickleError as error:
        return str(error)
    storage = pickled.field(metadata, "storage_data")
    if not isinstance(storage, dict):
        return "does not say which files belong to it"
    ends: dict[str, int] = {}
    for place in storage.values():
        name, offset, length = (pickled.field(place, key) for key in ("relative_path", "offset", "length"))
        if not isinstance(name, str) or not isinstance(offset, int) or not isinstance(length, int):
            return "refers to its files in an unknown way"
        ends[name] = max(ends.get(name, 0), offset + length)
    return tuple(sorted(ends.items()))
