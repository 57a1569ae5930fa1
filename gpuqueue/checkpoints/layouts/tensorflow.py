"""TensorFlow: `<prefix>-<step>.index` and `.data-0000i-of-0000n`; the prefix is what one restores."""

from __future__ import annotations

from gpuqueue.checkpoints.formats import sstable
from gpuqueue.checkpoints.listing import Files

NAME = "tensorflow"


def claims(files: Files) -> bool:
    return files.is_parts and any(name.endswith(".index") or ".data-" in name for name in files)


def completed_at(files: Files) -> float | None:
    # The index is written when all data is.
    index = _index(files)
    return files[index].mtime if index else None


def fault(files: Files, step: int | None) -> str | None:
    index = _index(files)
    if index is None:
        return "its .index file is missing: it is written last, so the save was not finished"
    try:
        ends = sstable.bundle_ends(files[index].path)
    except sstable.TableError as error:
        return f"{index} {error}"
    stem = index.removesuffix(".index")
    for shard, end in sorted(ends.shards.items()):
        name = f"{stem}.data-{shard:05d}-of-{ends.count:05d}"
        if name not in files:
            return f"{name} is missing"
        if files[name].size < end:
            return f"{name} has {files[name].size} bytes where {index} refers to {end}"
    return None


def _index(files: Files) -> str | None:
    return next((name for name in files if name.endswith(".index")), None)
