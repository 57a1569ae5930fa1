"""The pattern for the rest: whatever has a step or an epoch in its name and holds saved state."""

from __future__ import annotations

from pathlib import PurePath

from gpuqueue.checkpoints.find import STATE_SUFFIXES
from gpuqueue.checkpoints.listing import Files

NAME = "files"


def claims(files: Files) -> bool:
    return True


def completed_at(files: Files) -> float | None:
    return files.newest_mtime


def fault(files: Files, step: int | None) -> str | None:
    if not any(PurePath(name).suffix in STATE_SUFFIXES or _no_suffix(name) for name in files):
        return "it holds no file of saved state"
    return None


def _no_suffix(name: str) -> bool:
    return "." not in PurePath(name).name
