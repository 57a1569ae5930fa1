"""The words of this room: a checkpoint, one that was passed over, and the answer to "which is the newest"."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint: a directory, or the one file that stands for it."""

    path: str  # absolute
    step: int  # optimizer steps, or epochs where the layout counts nothing else
    layout: str
    completed_at: float  # unix seconds: when the file that this layout writes last was written
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that was passed over, and why, in one sentence. `step` is None for the directory itself."""

    path: str
    step: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest complete checkpoint, if any, and what was passed over on the way to it, newest first."""

    checkpoint: Checkpoint | None
    skipped: tuple[Skipped, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be said of one checkpoint: usable if `reason` is None, else why not.

    `path`, `step`, `layout` and `size_bytes` are those of `Checkpoint`; `completed_at` is None where
    nothing tells. A verdict about the directory itself (unreadable, too large) has no `layout`.
    """

    path: str
    step: int | None
    layout: str | None
    completed_at: float | None
    size_bytes: int
    reason: str | None

    @property
    def complete(self) -> bool:
        return self.reason is None
