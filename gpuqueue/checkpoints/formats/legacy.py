"""Is a pickle file whole: plain pickles one after the other, or torch's format from before it used zip?"""

from __future__ import annotations

from typing import Any, BinaryIO

from gpuqueue.checkpoints.formats import pickled

# The pickle of a number that torch puts in front.
TORCH_MARK = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
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
    """What is wrong, or None.

    Plain pickles that follow one another carry no count: a file cut exactly between two of them passes.
    Of one that is too long to walk only the last byte is looked at.
    """
    try:
        if _is_torch(file):
            return _torch_fault(file, size)
        while file.tell() < size:
            pickled.skip(file, size)
    except pickled.TooLongError:
        file.seek(size - 1)
        return None if file.read(1) == b"." else "is cut off"
    except pickled.PickleError as error:
        return str(error)
    return None


def top(file: BinaryIO, size: int) -> Any:
    """The object that was saved, classes as `Inert`. Raises PickleError where it cannot be read."""
    if _is_torch(file):
        for _ in range(2):
            pickled.skip(file, size)
    return pickled.load_next(file, size)[0]


def _is_torch(file: BinaryIO) -> bool:
    """Leaves `file` behind the mark if it is there, else at the start."""
    file.seek(0)
    if file.read(len(TORCH_MARK)) == TORCH_MARK:
        return True
    file.seek(0)
    return False


def _torch_fault(file: BinaryIO, size: int) -> str | None:
    """After mark, version and system come the object, the storages' keys, then each storage's bytes."""
    for _ in range(2):
        pickled.skip(file, size)
    _, persistent = pickled.load_next(file, size)
    keys, _ = pickled.load_next(file, size)
    widths = dict(_storage(pid) for pid in persistent)
    end = file.tell()
    for key in keys if isinstance(keys, list) else []:
        if str(key) not in widths:
            return f"names a storage {key!r} that its object does not use"
        end += 8 + widths[str(key)]
    return None if end == size else f"has {size} bytes where its storages need {end}"


def _storage(pid: Any) -> tuple[str, int]:
    """(key, bytes) of `("storage", type, key, device, items, view)`."""
    try:
        _, kind, key, _, items = pid[:5]
        return str(key), _ITEM_BYTES.get(kind.__name__, 1) * int(items)
    except (TypeError, ValueError, AttributeError) as error:
        raise pickled.PickleError("refers to its storages in an unknown way") from error
