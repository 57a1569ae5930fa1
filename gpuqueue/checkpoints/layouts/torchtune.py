"""torchtune: `epoch_<n>/` or `step_<n>/` with the weights, then `recipe_state/recipe_state.pt` beside them.

There is one recipe state, that of the newest save; the last epoch of a finished run leaves none for itself.
"""

from __future__ import annotations

import re
from pathlib import PurePath

from gpuqueue.checkpoints.formats import whole
from gpuqueue.checkpoints.layouts import content
from gpuqueue.checkpoints.listing import Entry, Files, entry_at

NAME = "torchtune"
_NAME = re.compile(r"^(?:epoch|step)_\d+$")


def claims(files: Files) -> bool:
    return not files.is_parts and bool(_NAME.match(PurePath(files.root).name)) and _recipe(files) is not None


def completed_at(files: Files) -> float | None:
    return files.newest_mtime


def fault(files: Files, step: int | None) -> str | None:
    recipe = _recipe(files)
    if recipe is not None and (damage := whole.fault(recipe)):
        return f"recipe_state.pt {damage}"
    epochs = None if recipe is None else content.counts(recipe).get("epochs_run")
    if epochs is not None and step is not None and epochs <= step:
        return f"recipe_state.pt was saved after {epochs} epochs: this one's save was not finished"
    if not any(name.endswith((".safetensors", ".bin", ".pt", ".distcp")) for name in files):
        return "no file holds the model's weights or adapters"
    return None


def _recipe(files: Files) -> Entry | None:
    beside = PurePath(files.root).parent / "recipe_state" / "recipe_state.pt"
    return files.entries.get("recipe_state.pt") or entry_at(str(beside))
