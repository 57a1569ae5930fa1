"""Megatron-LM: `iter_0001000/`, and beside it `latest_checkpointed_iteration.txt`, written last."""

from __future__ import annotations

import re
from pathlib import PurePath

from gpuqueue.checkpoints.find import read_line
from gpuqueue.checkpoints.listing import Files, entry_at

NAME = "megatron"
TRACKER = "latest_checkpointed_iteration.txt"
_NAME = re.compile(r"^iter_\d{7}$")
_RANK = re.compile(r"^mp_rank_(\d+)(?:_(\d+))?(?:_(\d+))?/")


def claims(files: Files) -> bool:
    return not files.is_parts and bool(_NAME.match(PurePath(files.root).name))


def completed_at(files: Files) -> float | None:
    tracker = entry_at(str(PurePath(files.root).parent / TRACKER))
    if tracker is not None and _tracked(files) == int(PurePath(files.root).name[5:]):
        return max(tracker.mtime, files.newest_mtime)
    return files.newest_mtime


def fault(files: Files, step: int | None) -> str | None:
    tracked = _tracked(files)
    if tracked is None:
        return f"{TRACKER} beside it is missing or holds no number: the save was not finished"
    if step is not None and step > tracked:
        return f"{TRACKER} still says {tracked}: the save was not finished"
    if not any(name.endswith((".pt", ".distcp")) or "/" in name for name in files):
        return "it holds no file of saved state"
    return _rank_missing(files)


def _tracked(files: Files) -> int | None:
    text = read_line(str(PurePath(files.root).parent / TRACKER))
    return int(text) if text is not None and text.isdecimal() else None


def _rank_missing(files: Files) -> str | None:
    """Tensor, pipeline and expert ranks form a full grid."""
    ranks = {tuple(int(part) for part in match.groups(default="0")) for name in files if (match := _RANK.match(name))}
    grid = [set(axis) for axis in zip(*ranks, strict=True)]
    expected = 1
    for axis in grid:
        expected *= max(axis) + 1
    if ranks and len(ranks) != expected:
        return f"it holds {len(ranks)} of {expected} ranks"
    return None
