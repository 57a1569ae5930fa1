"""Is a pickle file whole: plain pickles one after the other, or torch's format from before it used zip?"""

from __future__ import annotations

from typing import Any, BinaryIO

from gpuqueue.checkpoints.formats import pickled

TORCH_MAGIC = 0x1950A86A20F9469CFC6C
_ITEM_BYTES = {
    "DoubleStorage": 8,
    "LongStorage": 8,
    "ComplexFloatStorage": 8,
    "ComplexDoubleStorage": 16,
    "FloatStorage": 4,
    "IntStorage": 4,
    "HalfStorage": 2,
    "BFloat16Storage": 2,
    "ShortStorage": 2,
}


def fault(file: BinaryIO, size: int) -> str | None:
    """What is wrong, or None. Raises PickleError where a pickle ends early.

    Plain pickles that follow one another carry no count: a file cut exactly between two of them passes.
    """
    first, _ = pickled.load_with_persistent(file, size)
    if first == TORCH_MAGIC:
        return _torch_fault(file, size)
    while file.tell() < size:
        pickled.skip(file, size)
    return None


def top(file: BinaryIO, size: int) -> Any:
    """The object that was saved, classes as `Inert`. Raises PickleError where it cannot be read."""
    first, _ = pickled.load_with_persistent(file, size)
    if first != TORCH_MAGIC:
        return first
    for _ in range(2):
        pickled.skip(file, size)
    return pickled.load_with_persistent(file, size)[0]


def _torch_fault(file: BinaryIO, size: int) -> str | None:
    """After magic, version and system come the object, the storages' keys, then each storage's bytes."""
    for _ in range(2):
        pickled.skip(file, size)
    _, persistent = pickled.load_with_persistent(file, size)
    keys, _ = pickled.load_with_persistent(file, size)
    widths = dict(_storage(pid) for pid in persistent)
    end = file.tell()
    for key in keys if isinstance(keys, list) else []:
        if key not in widths:
            return f"names a storage {key!r} that its object does not use"
        width, count = widths[key]
        end += 8 + width * count
    if end != size:
        return f"has {size} bytes where its storages need {end}"
    return None


def _storage(pid: Any) -> tuple[Any, tuple[int, int]]:
    """(key, (bytes an item, items)) of `("storage", type, key, device, items, view)`."""
    try:
        _, kind, key, _, count = pid[:5]
        return key, (_ITEM_BYTES.get(kind.__name__, 1), int(count))
    except (TypeError, ValueError, AttributeError) as error:
        raise pickled.PickleError(f"refers to its storages in an unknown way: {error}") from error
