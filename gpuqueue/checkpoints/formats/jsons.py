"""Reads a JSON file of bounded size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpuqueue.checkpoints.listing import Entry

# A long run's trainer_state.json, with a line for every step, has reached 100 MiB.
MAX_JSON = 256 << 20


class JsonError(ValueError):
    """The file holds no JSON; the message ends a sentence that begins with its name."""


def load(entry: Entry) -> Any:
    """What the file holds. JsonError if it is cut off, damaged or too large, OSError if it cannot be read."""
    if entry.size > MAX_JSON:
        raise JsonError(f"is JSON of {entry.size} bytes, too large to check")
    try:
        return json.loads(Path(entry.path).read_bytes())
    except (ValueError, RecursionError):
        raise JsonError("is not valid JSON: cut off or damaged") from None
