"""Are all the files of a set there: shards that an index names, numbered parts, files still being written?"""

from __future__ import annotations

import functools
import re
from pathlib import PurePath

from gpuqueue.checkpoints.find import TEMPORARY
from gpuqueue.checkpoints.formats import jsons
from gpuqueue.checkpoints.listing import Entry, Files

_NUMBERED_PART = re.compile(r"^(.*?)(\d{1,6})(-of-|_of_)(\d{1,6})(.*)$")


def fault(files: Files) -> str | None:
    """The first thing that is missing or unfinished, as a sentence, or None."""
    for name in files:
        if TEMPORARY.search(PurePath(name).name):
            return f"{name} is a temporary file: the save was not finished"
        if name.endswith(".index.json"):
            for shard in shards_named_by(files[name]):
                beside = str(PurePath(name).parent / shard)
                if beside not in files:
                    return f"{beside} is missing: {name} names it"
    return _part_missing(files)


def _part_missing(files: Files) -> str | None:
    """`model-00001-of-00003.safetensors` promises two more."""
    for name in files:
        match = _NUMBERED_PART.match(name)
        if match is None:
            continue
        before, number, of, total, after = match.groups()
        # Parts are counted from 0 (TensorFlow, NeMo) or from 1 (Hugging Face).
        zero = f"{before}{0:0{len(number)}}{of}{total}{after}" in files
        first = 0 if zero or int(number) == 0 else 1
        for part in range(first, int(total) + first):
            expected = f"{before}{part:0{len(number)}}{of}{total}{after}"
            if expected not in files:
                return f"{expected} is missing: it is one of {int(total)} parts"
    return None


@functools.lru_cache(maxsize=256)
def shards_named_by(entry: Entry) -> tuple[str, ...]:
    """The files that a `*.index.json` names; none if it cannot be read (then its own check says so)."""
    try:
        return tuple(sorted({str(shard) for shard in jsons.load(entry)["weight_map"].values()}))
    except (jsons.JsonError, TypeError, KeyError, AttributeError):
        return ()
