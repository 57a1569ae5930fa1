"""The number a candidate goes by: its name's, or, if that does not say "step", what its contents tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath

from gpuqueue.checkpoints.find import Candidate, Claim
from gpuqueue.checkpoints.layouts import content
from gpuqueue.checkpoints.listing import Entry, entry_at

MAX_READ = 200
MAX_ASKED = 2000
_TELLING = frozenset({".pt", ".pth", ".ckpt", ".bin", ".tar", ".pkl"})


def numbered(candidates: list[Candidate]) -> list[Candidate]:
    """The candidates with the best number known, oldest first; those without any come last.

    Numeric, never by name: step_10000 is newer than step_9000. What counts steps is newer than what counts
    epochs, and whatever its name calls a checkpoint is newer than a file with a bare number.
    At most MAX_READ files are opened for their number, the latest written first.
    """
    doubtful = [index for index, candidate in enumerate(candidates) if _is_doubtful(candidate)][:MAX_ASKED]
    unsure = [(entry, index) for index in doubtful if (entry := _telling(candidates[index]))]
    unsure.sort(key=lambda pair: (pair[0].mtime_ns, pair[1]), reverse=True)
    told = {index: _told(entry, candidates[index]) for entry, index in unsure[:MAX_READ]}
    known = [
        replace(candidate, claim=told.get(index) or candidate.claim or _of_directory(candidate))
        for index, candidate in enumerate(candidates)
    ]
    return sorted(known, key=_age)


def _is_doubtful(candidate: Candidate) -> bool:
    claim = candidate.claim
    return claim is None or (not candidate.is_directory and claim.worded and not claim.certain)


def _telling(candidate: Candidate) -> Entry | None:
    """The file to ask."""
    if candidate.is_directory:
        return entry_at(f"{candidate.path}/mp_rank_00_model_states.pt")  # a DeepSpeed tag
    for name in candidate.parts:
        if PurePath(name).suffix in _TELLING:
            return entry_at(str(PurePath(candidate.path).parent / name))
    return None


def _told(entry: Entry, candidate: Candidate) -> Claim | None:
    series = candidate.claim.series if candidate.claim else PurePath(candidate.path).name
    try:
        step, epoch = content.step(entry), content.counts(entry).get("epoch", -1)
    except OSError:
        return None  # unreadable: judging it will say so
    if step is not None:
        return Claim(step, False, series, certain=False)
    if candidate.claim is None and epoch >= 0:
        return Claim(epoch, True, series, certain=False)
    return None


def _of_directory(candidate: Candidate) -> Claim | None:
    # A directory that is overwritten in place at every save needs no number: it is older than any that has.
    return Claim(0, False, PurePath(candidate.path).name) if candidate.is_directory else None


def _age(candidate: Candidate) -> tuple[bool, bool, bool, int, bool, str]:
    claim = candidate.claim
    if claim is None:
        return (True, False, False, 0, False, candidate.path)
    # Of a numbered file and a `last` of the same step the numbered one: the other will be overwritten.
    worded = claim.worded or candidate.is_directory
    return (False, worded, not claim.in_epochs, claim.step, claim.certain, candidate.path)
