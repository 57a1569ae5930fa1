"""The step and epoch that a torch file says it was saved at, read without running its pickle."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from gpuqueue.checkpoints.formats import legacy, pickled, zipped
from gpuqueue.checkpoints.listing import Entry

_STEPS = ("global_step", "global_steps", "num_updates", "step", "iteration", "iter", "steps")


def top(entry: Entry) -> Any:
    """The object of a torch.save file or pickle, classes as `Inert`, tensors empty; None if unreadable."""
    return _top(entry.path, entry.size, entry.mtime_ns)


@functools.lru_cache(maxsize=256)
def _top(path: str, size: int, _mtime_ns: int) -> Any:
    try:
        with Path(path).open("rb") as file:
            zipped_up = file.read(2) == b"PK"
            file.seek(0)
            if not zipped_up:
                return legacy.top(file, size)
        data = zipped.read_member(path, "data.pkl")
        return None if data is None else pickled.load(data)
    except (OSError, pickled.PickleError):
        return None


def step(entry: Entry) -> int | None:
    """The step that the file says it was saved at, in the words of the common trainers."""
    saved = top(entry)
    updates = _fairseq_updates(saved)
    if updates is not None:
        return updates
    for key in _STEPS:
        if (count := whole_number(pickled.field(saved, key))) is not None:
            return count
    meta = pickled.field(saved, "meta")
    return whole_number(pickled.field(meta, "iter"))


def epoch(entry: Entry) -> int | None:
    """The epoch that the file says it was saved at."""
    return whole_number(pickled.field(top(entry), "epoch"))


def whole_number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _fairseq_updates(saved: Any) -> int | None:
    history = pickled.field(saved, "optimizer_history")
    if not isinstance(history, list) or not history:
        return None
    return whole_number(pickled.field(history[-1], "num_updates"))
