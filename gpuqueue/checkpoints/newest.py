"""Which checkpoint under a directory is the newest complete one (rule R2)."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from gpuqueue.checkpoints.find import Candidate, find
from gpuqueue.checkpoints.judge import judge
from gpuqueue.checkpoints.model import Checkpoint, Newest, Skipped, Verdict

MAX_JUDGED = 1000


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
    root = _absolute(directory)
    excluded = frozenset(_absolute(path) for path in exclude)
    found = find(root)
    skipped = [Skipped(path, None, reason) for path, reason in found.troubles]
    for count, candidate in enumerate(sorted(found.candidates, key=_age, reverse=True)):
        if count >= MAX_JUDGED:
            skipped.append(Skipped(root, None, f"only the newest {MAX_JUDGED} checkpoints were checked"))
            break
        verdict = judge(candidate, since, excluded)
        if checkpoint := _checkpoint(verdict):
            return Newest(checkpoint, tuple(skipped))
        skipped.append(Skipped(verdict.path, verdict.step, verdict.reason or ""))
    return Newest(None, tuple(skipped))


def all_checkpoints(directory: str | os.PathLike[str], since: float | None = None) -> list[Verdict]:
    """Everything under `directory` that looks like a checkpoint, by step, each with its verdict."""
    root = _absolute(directory)
    found = find(root)
    verdicts = [Verdict(path, None, None, None, 0, reason) for path, reason in found.troubles]
    verdicts += [judge(candidate, since, ()) for candidate in sorted(found.candidates, key=_age)]
    return verdicts


def _absolute(path: str | os.PathLike[str]) -> str:
    return os.path.normpath(Path(path).absolute())


def _age(candidate: Candidate) -> tuple[bool, int, str]:
    # Numeric, never by name: step_10000 is newer than step_9000. Epochs are not comparable with steps.
    claim = candidate.claim
    if claim is None:
        return (True, 1 << 60, candidate.path)
    return (not claim.in_epochs, claim.step, candidate.path)


def _checkpoint(verdict: Verdict) -> Checkpoint | None:
    if verdict.reason is not None or verdict.step is None or verdict.layout is None:
        return None
    return Checkpoint(
        verdict.path, verdict.step, verdict.layout, verdict.completed_at or 0.0, verdict.size_bytes
    )
