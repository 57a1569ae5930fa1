"""fairseq: `checkpoint_last.pt`, `checkpoint<epoch>.pt`, `checkpoint_<epoch>_<updates>.pt`, renamed last."""

from __future__ import annotations

import re

from gpuqueue.checkpoints.listing import Files

NAME = "fairseq"
_NAME = re.compile(r"^checkpoint(?:_last|_best|_crash|\d+|_\d+_\d+)(?:-shard\d+)?\.pt$")


def claims(files: Files) -> bool:
    return files.is_parts and all(_NAME.match(name) for name in files)


def completed_at(files: Files) -> float | None:
    return files.newest_mtime


def fault(files: Files, step: int | None) -> str | None:
    return None
