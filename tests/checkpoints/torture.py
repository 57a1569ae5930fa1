"""Damages a real checkpoint in every way that a crash can, and asks each time which one is picked."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuqueue.checkpoints.newest import newest_complete

CUTS_PER_FILE = 4


@contextmanager
def removed(path: Path) -> Iterator[None]:
    aside = path.parent.parent / f"{path.name}.aside"
    path.rename(aside)
    try:
        yield
    finally:
        aside.rename(path)


@contextmanager
def cut_at(path: Path, length: int) -> Iterator[None]:
    whole = path.read_bytes()
    path.write_bytes(whole[:length])
    try:
        yield
    finally:
        path.write_bytes(whole)


def damage_everything(
    root: Path,
    newest: Path,
    elder: Path,
    seed: int,
    spare_cut: Callable[[Path], bool] = lambda _: False,
    spare_removed: Collection[str] = (),
) -> int:
    """Removes each file of `newest`, cuts each at random lengths; each time `elder` must be picked.

    Returns how many damages were tried. What the frameworks themselves do not need is named by the caller.
    """
    chance = random.Random(seed)
    assert picked(root) == str(newest), newest_complete(root)
    files = [newest] if newest.is_file() else sorted(p for p in newest.rglob("*") if p.is_file())
    tried = 0
    for path in files:
        if newest.is_dir() and path.name not in spare_removed:
            with removed(path):
                assert picked(root) == str(elder), f"{path.name} removed: {newest_complete(root)}"
            tried += 1
        if spare_cut(path):
            continue
        for length in lengths(path, chance):
            with cut_at(path, length):
                assert picked(root) == str(elder), f"{path.name} cut at {length}: {newest_complete(root)}"
            tried += 1
    assert picked(root) == str(newest)
    return tried


def lengths(path: Path, chance: random.Random) -> list[int]:
    """Random lengths, and the edges; a cut that loses nothing but white space at the end is none."""
    content = path.read_bytes()
    useful = len(content.rstrip()) if path.suffix == ".json" else len(content)
    edges = {0, 1, useful - 1} | {chance.randrange(useful) for _ in range(CUTS_PER_FILE if useful else 0)}
    return sorted(length for length in edges if 0 <= length < useful)


def picked(root: Path) -> str | None:
    checkpoint = newest_complete(root).checkpoint
    return checkpoint.path if checkpoint else None
