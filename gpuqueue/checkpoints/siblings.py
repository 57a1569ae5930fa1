"""Compares a checkpoint with the one before it: what the elder has, the younger must have too.

Most layouts name no list of their files, so a file that was never written, or was lost, shows only here.
Within one run the set of files stays the same; what comes and goes (reports, logs) is left out.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import PurePath

from gpuqueue.checkpoints.listing import Files

_COMES_AND_GOES = re.compile(
    r"eval|metric|result|report|event|predict|sample|\blog|\.(?:log|csv|jsonl|png|distcp)$", re.IGNORECASE
)
_HASH = re.compile(r"[0-9a-f]{16,}")
_CONSTANT = frozenset({".txt", ".model", ".jinja"})


def lacking(younger: Files, elder: Files, elder_name: str) -> str | None:
    """The first file that the elder has and the younger lacks, as a sentence, or None.

    Numbers in names (ranks, steps, shards) stand for each other, but as many are expected. Vocabularies and
    templates carry no mark at their end; they are constant, so a shorter one was cut off.
    """
    counts = Counter(map(_kind, younger))
    for name in elder:
        if not _counts(name):
            continue
        kind = _kind(name)
        counts[kind] -= 1
        if counts[kind] < 0:
            return f"{name} is missing, or one like it: {elder_name} has it"
        if PurePath(name).suffix in _CONSTANT and name in younger and younger[name].size < elder[name].size:
            return f"{name} is shorter than in {elder_name}"
    return None


def _kind(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def _counts(name: str) -> bool:
    return not _COMES_AND_GOES.search(name) and not _HASH.search(name)
