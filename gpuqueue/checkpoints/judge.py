"""Judges one candidate by its own merits: is it a complete checkpoint, and finished when?"""

from __future__ import annotations

import math
from collections.abc import Collection
from pathlib import PurePath

from gpuqueue.checkpoints.find import TEMPORARY, Candidate
from gpuqueue.checkpoints.formats import sets, whole
from gpuqueue.checkpoints.layouts import dcp, deepspeed
from gpuqueue.checkpoints.layouts.table import Layout, layout_of
from gpuqueue.checkpoints.listing import Files, entry_at, list_files
from gpuqueue.checkpoints.model import Verdict


def files_of(candidate: Candidate) -> Files:
    """The files that belong to a candidate, as they are now."""
    if candidate.is_directory:
        return list_files(candidate.path)
    folder = str(PurePath(candidate.path).parent)
    entries = {name: entry_at(f"{folder}/{name}") for name in sorted(candidate.parts)}
    present = {name: entry for name, entry in entries.items() if entry is not None}
    trouble = None if len(present) == len(entries) else "it vanished or cannot be read"
    return Files(folder, present, trouble, is_parts=True)


def judge(candidate: Candidate, since: float | None, exclude: Collection[str]) -> Verdict:
    """The verdict on one candidate. The cheap questions come first."""
    files = files_of(candidate)
    layout = layout_of(files)
    finished = layout.completed_at(files)
    step = candidate.claim.step if candidate.claim else None
    reason = (
        _passed_over(candidate.path, exclude)
        or _too_old(files.newest_mtime if finished is None else finished, since)
        or _unfinished(candidate, files)
        or _incomplete(files, layout, step)
    )
    if reason is None and step is None:
        reason = "neither its name nor its contents tell its step"
    return Verdict(candidate.path, step, layout.NAME, finished, files.size_bytes, reason)


def _incomplete(files: Files, layout: Layout, step: int | None) -> str | None:
    try:
        return (
            layout.fault(files, step)
            or sets.fault(files)
            or dcp.sharded_fault(files)
            or deepspeed.ranks_fault(files)
            or _damaged(files)
        )
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"


def _passed_over(path: str, exclude: Collection[str]) -> str | None:
    return "passed over: attempts that started from it failed" if path in exclude else None


def _too_old(finished: float, since: float | None) -> str | None:
    # Some file systems keep whole seconds only, and the kernel stamps files with a clock that lags a little.
    if since is None or finished == 0 or finished >= math.floor(since):
        return None
    return "older than this job"


def _unfinished(candidate: Candidate, files: Files) -> str | None:
    if TEMPORARY.search(PurePath(candidate.path).name):
        return "its name is a temporary one: the save was not finished"
    if files.trouble:
        return files.trouble
    return None if files.entries else "it is empty"


def _damaged(files: Files) -> str | None:
    for name in files:
        if fault := whole.fault(files[name]):
            return f"{name} {fault}"
    return None
