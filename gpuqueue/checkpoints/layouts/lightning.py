"""Lightning: `*.ckpt`, `last.ckpt`, `hpc_ckpt_N.ckpt`; a file, or a directory with sharded strategies.

A file is written under another name and renamed, so it is whole if it is there; the zip is checked anyway.
"""

from __future__ import annotations

from gpuqueue.checkpoints.listing import Files

NAME = "lightning"


def claims(files: Files) -> bool:
    if files.root.endswith(".ckpt"):
        return True
    return files.is_parts and all(name.endswith(".ckpt") for name in files)


def completed_at(files: Files) -> float | None:
    return files.newest_mtime


def fault(files: Files, step: int | None) -> str | None:
    return None
