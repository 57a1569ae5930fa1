"""Ultralytics: `weights/last.pt`, `best.pt`, `epoch<N>.pt`; counted in epochs, overwritten in place."""

from __future__ import annotations

import re
from pathlib import PurePath

from gpuqueue.checkpoints.layouts import content
from gpuqueue.checkpoints.listing import Files

NAME = "ultralytics"
_NAME = re.compile(r"^(?:last|best|epoch\d+)\.pt$")


def claims(files: Files) -> bool:
    return files.is_parts and PurePath(files.root).name == "weights" and all(_NAME.match(name) for name in files)


def completed_at(files: Files) -> float | None:
    return files.newest_mtime


def fault(files: Files, step: int | None) -> str | None:
    for name in files:
        if content.counts(files[name]).get("epoch") == -1:
            return f"{name} is of a run that has ended: its optimizer was stripped, it cannot be resumed"
    return None
