"""The layouts that are known, in the order in which they are asked; the last takes whatever is left."""

from __future__ import annotations

from typing import Protocol

from gpuqueue.checkpoints.layouts import (
    accelerate,
    anything,
    dcp,
    deepspeed,
    fairseq,
    huggingface,
    lightning,
    megatron,
    orbax,
    tensorflow,
    torchtune,
    ultralytics,
)
from gpuqueue.checkpoints.listing import Files


class Layout(Protocol):
    """What each module of this package offers."""

    NAME: str

    def claims(self, files: Files) -> bool:
        """Whether these files are of this layout, half-written ones included."""
        ...

    def completed_at(self, files: Files) -> float | None:
        """Unix seconds at which the file that is written last was written; None if it is missing."""
        ...

    def fault(self, files: Files, step: int | None) -> str | None:
        """What this layout needs and does not find. Whole files and whole sets are checked elsewhere."""
        ...


LAYOUTS: tuple[Layout, ...] = (
    huggingface,
    orbax,
    megatron,
    lightning,
    tensorflow,
    fairseq,
    ultralytics,
    accelerate,
    deepspeed,
    dcp,
    torchtune,
    anything,
)


def layout_of(files: Files) -> Layout:
    """The layout of a candidate's files; `anything` claims all, so there is always one."""
    return next(layout for layout in LAYOUTS if layout.claims(files))
