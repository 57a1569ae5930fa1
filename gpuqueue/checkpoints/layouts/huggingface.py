"""Hugging Face Trainer and all that keep its layout: Axolotl, LLaMA-Factory, ms-swift, TRL, Unsloth, PEFT.

`checkpoint-<step>/` is written model first, then optimizer, scheduler and random state, and
`trainer_state.json` last. Trainer itself resumes from the largest number without looking inside.
"""

from __future__ import annotations

import functools
import re
from pathlib import PurePath

from gpuqueue.checkpoints.formats import jsons, pickled, zipped
from gpuqueue.checkpoints.layouts import deepspeed
from gpuqueue.checkpoints.listing import Entry, Files

NAME = "hf"
LAST = "trainer_state.json"
# Written by Trainer's just-in-time saving (`enable_jit_checkpoint`), removed when the save is done.
SENTINEL = "checkpoint-is-incomplete.txt"
_NAME = re.compile(r"^checkpoint-\d+$")
# A save that was cut short has got at least to one of these, or to weights.
_FIRST = frozenset({"config.json", "adapter_config.json"})
_NO_WEIGHTS = frozenset({"training_args.bin", "optimizer.bin", "scheduler.bin", "sampler.bin"})


def claims(files: Files) -> bool:
    if LAST in files or SENTINEL in files:
        return True
    if not _NAME.match(PurePath(files.root).name) or "random_states_0.pkl" in files:
        return False
    return any(name.endswith((".safetensors", ".bin")) or name in _FIRST for name in files)


def completed_at(files: Files) -> float | None:
    return files[LAST].mtime if LAST in files else None


def fault(files: Files, step: int | None) -> str | None:
    """Why Trainer could not resume from here, or None."""
    if SENTINEL in files:
        return f"{SENTINEL} is still there: the save was not finished"
    if LAST not in files:
        return f"{LAST} is missing: it is written last, so the save was not finished"
    recorded = recorded_step(files[LAST])
    if recorded is None:
        return f"{LAST} has no global_step: it is cut off or damaged"
    if step is not None and recorded != step:
        return f"{LAST} says global_step {recorded}, not {step}"
    if not any(_holds_weights(name) for name in files):
        return "no file holds the model's weights or adapters"
    return deepspeed.tag_missing(files) or _training_state_fault(files)


def _holds_weights(name: str) -> bool:
    base = PurePath(name).name
    if base.endswith((".safetensors", ".distcp", "_model_states.pt", ".h5")):
        return True
    return base.endswith(".bin") and base not in _NO_WEIGHTS


def _training_state_fault(files: Files) -> str | None:
    """Trainer writes `training_args.bin`, and all else that it needs unless those say `save_only_model`."""
    if "training_args.bin" not in files or saves_only_model(files["training_args.bin"]):
        return None
    sharded = any(name.startswith(("global_step", "optimizer_")) for name in files)
    if not sharded and not any(name in files for name in ("optimizer.pt", "optimizer.bin")):
        return "the optimizer's state is missing"
    if "optimizer.pt" in files and "scheduler.pt" not in files:
        return "scheduler.pt is missing"
    if not any(name.startswith("rng_state") for name in files):
        return "rng_state.pth is missing"
    return None


@functools.lru_cache(maxsize=256)
def recorded_step(entry: Entry) -> int | None:
    """The global_step in trainer_state.json; None if it cannot be read."""
    try:
        state = jsons.load(entry)
    except jsons.JsonError:
        return None
    step = state.get("global_step") if isinstance(state, dict) else None
    return step if isinstance(step, int) and not isinstance(step, bool) else None


@functools.lru_cache(maxsize=256)
def saves_only_model(entry: Entry) -> bool:
    """Whether the pickled TrainingArguments say that optimizer and scheduler are not saved."""
    data = zipped.read_member(entry.path, "data.pkl")
    if data is None:
        return False
    try:
        return pickled.field(pickled.load(data), "save_only_model") is True
    except pickled.PickleError:
        return False
