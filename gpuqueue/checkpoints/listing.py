"""Looks at a directory with bounded work: names, sizes and times, never contents."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

MAX_ENTRIES = 20_000
MAX_DEPTH = 6


@dataclass(frozen=True, slots=True)
class Entry:
    """One file as `stat` sees it; enough to know that it has not changed since."""

    path: str
    size: int
    mtime_ns: int
    inode: int

    @property
    def mtime(self) -> float:
        return self.mtime_ns / 1e9


@dataclass(frozen=True, slots=True)
class Files:
    """The files that make up one checkpoint, by their name relative to `root`, in name order.

    `is_parts` says that they are some files of `root`, not all that is in it.
    `trouble` is the sentence that says why the list cannot be trusted (unreadable, too many), if so.
    """

    root: str
    entries: Mapping[str, Entry]
    trouble: str | None = None
    is_parts: bool = False

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def __getitem__(self, name: str) -> Entry:
        return self.entries[name]

    @property
    def size_bytes(self) -> int:
        return sum(entry.size for entry in self.entries.values())

    @property
    def newest_mtime(self) -> float:
        """Unix seconds; 0 where there is no file."""
        return max((entry.mtime for entry in self.entries.values()), default=0.0)


def entry_at(path: str) -> Entry | None:
    """The regular file at `path`, links followed; None where there is none or it cannot be asked."""
    try:
        seen = Path(path).stat()
    except OSError:
        return None
    if not stat.S_ISREG(seen.st_mode):
        return None
    return Entry(path, seen.st_size, seen.st_mtime_ns, seen.st_ino)


def list_files(root: str) -> Files:
    """Every file at or below `root`, at most MAX_ENTRIES of them and MAX_DEPTH levels deep."""
    entries: dict[str, Entry] = {}
    trouble: str | None = None
    pending = [("", 0)]
    seen = 0
    while pending and trouble is None:
        below, depth = pending.pop()
        try:
            with os.scandir(f"{root}/{below}") as found:
                for item in found:
                    seen += 1
                    if seen > MAX_ENTRIES:
                        trouble = f"it holds more than {MAX_ENTRIES} files, too many to check"
                        break
                    name = f"{below}{item.name}"
                    if item.is_dir(follow_symlinks=False):
                        if depth < MAX_DEPTH:
                            pending.append((f"{name}/", depth + 1))
                    elif (entry := entry_at(item.path)) is not None:
                        entries[name] = entry
                    elif item.is_symlink() and not Path(item.path).exists():
                        trouble = f"{name} is a link to nothing"
        except OSError as error:
            trouble = f"it cannot be read: {error.strerror or error}"
    return Files(root, dict(sorted(entries.items())), trouble)
