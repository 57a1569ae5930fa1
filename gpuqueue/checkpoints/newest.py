"""Which checkpoint under a directory is the newest complete one (rule R2)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path, PurePath

from gpuqueue.checkpoints.find import Candidate, find
from gpuqueue.checkpoints.judge import files_of, judge
from gpuqueue.checkpoints.model import Checkpoint, Newest, Skipped, Verdict
from gpuqueue.checkpoints.numbering import numbered
from gpuqueue.checkpoints.siblings import lacking

MAX_JUDGED = 1000
MAX_ELDERS = 5


def newest_complete(
    directory: str | os.PathLike[str],
    since: float | None = None,
    exclude: Collection[str] = (),
) -> Newest:
    """The complete checkpoint with the largest step under `directory`, and what was passed over for it.

    `since` (unix seconds) passes over what was completed before it; `exclude` names paths to pass over
    (rule R4). Never raises for the state of the world: a directory that is missing, unreadable or too large
    to look through is said in `skipped`. Work is bounded; only names, sizes, times and headers are read.
    """
    skipped: list[Skipped] = []
    for verdict in _newest_first(directory, since, exclude):
        if checkpoint := _checkpoint(verdict):
            return Newest(checkpoint, tuple(skipped))
        skipped.append(Skipped(verdict.path, verdict.step, verdict.reason or ""))
    return Newest(None, tuple(skipped))


def all_checkpoints(directory: str | os.PathLike[str], since: float | None = None) -> list[Verdict]:
    """Everything under `directory` that looks like a checkpoint, oldest step first, each with its verdict."""
    return list(_newest_first(directory, since, ()))[::-1]


def _newest_first(
    directory: str | os.PathLike[str], since: float | None, exclude: Collection[str]
) -> Iterator[Verdict]:
    """Verdicts one by one, so that whoever needs only the first complete one looks at no more."""
    root = _absolute(directory)
    excluded = frozenset(_absolute(path) for path in exclude)
    found = find(root)
    yield from (Verdict(path, None, None, None, 0, reason) for path, reason in found.troubles)
    candidates = numbered(found.candidates)
    for index in reversed(range(len(candidates))):
        if len(candidates) - index > MAX_JUDGED:
            yield Verdict(root, None, None, None, 0, f"only the newest {MAX_JUDGED} checkpoints were checked")
            return
        verdict = judge(candidates[index], since, excluded)
        if verdict.complete:
            verdict = _beside_its_elder(verdict, candidates[: index + 1], since)
        yield verdict


def _beside_its_elder(verdict: Verdict, up_to: list[Candidate], since: float | None) -> Verdict:
    """Compares with the nearest older checkpoint of the same run and series that is complete by itself.

    A run of an earlier day (before `since`) may have been set up otherwise, and does not count.
    """
    *elders, candidate = up_to
    looked_at = 0
    for elder in reversed(elders):
        if looked_at == MAX_ELDERS:
            break
        if not _same_series(elder, candidate):
            continue
        looked_at += 1
        if judge(elder, since, ()).complete:
            reason = lacking(files_of(candidate), files_of(elder), PurePath(elder.path).name)
            return replace(verdict, reason=reason)
    return verdict


def _same_series(one: Candidate, other: Candidate) -> bool:
    if one.claim is None or other.claim is None or one.is_directory != other.is_directory:
        return False
    same_place = PurePath(one.path).parent == PurePath(other.path).parent
    return same_place and one.claim.series == other.claim.series and one.claim.step != other.claim.step


def _absolute(path: str | os.PathLike[str]) -> str:
    return os.path.normpath(Path(path).absolute())


def _checkpoint(verdict: Verdict) -> Checkpoint | None:
    if verdict.reason is not None or verdict.step is None or verdict.layout is None:
        return None
    return Checkpoint(verdict.path, verdict.step, verdict.layout, verdict.completed_at or 0.0, verdict.size_bytes)
