"""Accelerate's `save_state`: `checkpoint_<i>/` with model, optimizer.bin, scheduler.bin, random_states_0.pkl.

The random states come after model, optimizers and schedulers. It deletes the oldest checkpoint before it
saves the next, so that a limit of one can leave nothing.
"""

from __future__ import annotations

from pathlib import PurePath

from gpuqueue.checkpoints.listing import Files

NAME = "accelerate"
_OWN = ("optimizer.bin", "scheduler.bin", "sampler.bin")
_WEIGHTS = (".safetensors", ".distcp", "_model_states.pt")


def claims(files: Files) -> bool:
    if files.is_parts:
        return False
    return any(name.startswith("random_states_") for name in files) or any(name in files for name in _OWN)


def completed_at(files: Files) -> float | None:
    return files.newest_mtime if _last(files) else None


def fault(files: Files, step: int | None) -> str | None:
    if not _last(files):
        return "random_states_0.pkl is missing: it is written last, so the save was not finished"
    if not any(name.endswith(_WEIGHTS) or PurePath(name).name.startswith("pytorch_model") for name in files):
        return "no file holds the model's weights"
    return None


def _last(files: Files) -> bool:
    return "random_states_0.pkl" in files
