"""Warns before the save that would fill the disk."""

from __future__ import annotations

import os
import shutil

from gpuqueue.checkpoints.model import Newest

# A save of the same size, and one more: most trainers delete the oldest only after the new one is written.
CHECKPOINTS_OF_ROOM = 2


def room_for_next(directory: str | os.PathLike[str], newest: Newest) -> str | None:
    """One sentence if the disk under `directory` has less free than twice the newest checkpoint's size.

    None if there is room, if there is no checkpoint yet to judge by, or if the disk cannot be asked.
    """
    if newest.checkpoint is None:
        return None
    try:
        free = shutil.disk_usage(directory).free
    except OSError:
        return None
    last = newest.checkpoint.size_bytes
    if free >= CHECKPOINTS_OF_ROOM * last:
        return None
    return (
        f"low disk space: {_gib(free)} free under {os.fspath(directory)}, "
        f"the last checkpoint took {_gib(last)}; the next save may fail"
    )


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
