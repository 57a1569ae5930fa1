"""Compares a checkpoint with the one before it: what the elder has, the younger must have too.

Most layouts name no list of their files, so a file that was never written, or was lost, shows only here.
Within one run the set of files stays the same; what comes and goes (reports, logs) is left out.
"""

from __future__ import annotations

import re
from collections import Counter

from gpuqueue.checkpoints.find import STATE_SUFFIXES
from gpuqueue.checkpoints.listing import Files

_REPORT = re.compile(r"eval|metric|result|report|event|predict|sample|readme|\blog", re.I)
_TEXT = frozenset({".json", ".txt", ".model", ".jinja", ".yaml", ".yml"})
_CONSTANT = frozenset({".txt", ".model", ".jinja"})
_HASH = re.compile(r"[0-9a-f]{16,}")


def lacking(younger: Files, elder: Files, elder_name: str) -> str | None:
    """The first file that the elder has and the younger lacks, as a sentence, or None.

    Numbers in names (ranks, steps, shards) stand for each other, but as many are expected. Vocabularies and
    templates carry no mark at their end; they are constant, so a shorter one was cut off.
    """
    counts = Counter(map(_kind, younger))
    for name in elder:
        kind = _kind(name)
        if not _counts(name):
            continue
        counts[kind] -= 1
        if counts[kind] < 0:
            return f"{name} is missing, or one like it: {elder_name} has it"
        if _suffix(name) in _CONSTANT and name in younger and younger[name].size < elder[name].size:
            return f"{name} is shorter than in {elder_name}"
    return None


def _kind(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def _suffix(name: str) -> str:
    return name[name.rfind(".") :] if "." in name else ""


def _counts(name: str) -> bool:
    suffix = _suffix(name)
    if suffix == ".distcp" or (suffix not in STATE_SUFFIXES and suffix not in _TEXT):
        return False
    return not _REPORT.search(name) and not _HASH.search(name)
