"""What a torch file says of itself (step, epoch, ranks), read without running its pickle."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuqueue.checkpoints.formats import legacy, pickled, zipped
from gpuqueue.checkpoints.listing import Entry

_STEPS = ("global_step", "global_steps", "num_updates", "step", "iteration", "iter", "steps")
_COUNTS = (*_STEPS, "epoch", "epochs_run", "dp_world_size")


@functools.lru_cache(maxsize=4096)
def counts(entry: Entry) -> Mapping[str, int]:
    """The whole numbers that the trainers known here keep at the top of what they save, by their names.

    Empty if it is damaged; OSError if it cannot be read. Only numbers are remembered, never the contents.
    """
    saved = _top(entry.path, entry.size)
    # mmengine keeps its counters in `meta`, fairseq in the last entry of a history.
    sources = [pickled.field(saved, "meta"), saved]
    history = pickled.field(saved, "optimizer_history")
    if isinstance(history, list) and history:
        sources.append(history[-1])
    found = {}
    for source in sources:
        for key in _COUNTS:
            value = pickled.field(source, key)
            if isinstance(value, int) and not isinstance(value, bool):
                found[key] = value
    return found


def step(entry: Entry) -> int | None:
    """The step that the file says it was saved at, in the words of the common trainers."""
    found = counts(entry)
    return next((found[key] for key in _STEPS if found.get(key, -1) >= 0), None)


def _top(path: str, size: int) -> Any:
    try:
        with Path(path).open("rb") as file:
            if file.read(2) != b"PK":
                return legacy.top(file, size)
        data = zipped.read_member(path, "data.pkl")
        return None if data is None else pickled.load(data)
    except pickled.PickleError:
        return None
