"""Is one file whole? Picks the check by what the file is; reads headers and directories, not tensors."""

from __future__ import annotations

import functools
from pathlib import Path, PurePath

from gpuqueue.checkpoints.formats import arrays, jsons, legacy, msgpack, safetensors, zipped
from gpuqueue.checkpoints.listing import Entry

# Pickles and archives come under any of these names: what they are, their first bytes say.
_SNIFFED = frozenset({".pt", ".pth", ".ckpt", ".bin", ".pkl", ".pickle", ".tar", ".npz", ".keras"})
# Of these, other programs write formats of their own; zeros at the start are what a power loss leaves.
_ANYBODYS = frozenset({".bin", ".ckpt", ".tar"})
_STREAMED = {
    ".npy": arrays.npy_fault,
    ".h5": arrays.hdf5_fault,
    ".hdf5": arrays.hdf5_fault,
    ".msgpack": msgpack.fault,
}
_CHECKED = _SNIFFED | _STREAMED.keys() | {".safetensors", ".json"}


@functools.lru_cache(maxsize=8192)
def fault(entry: Entry) -> str | None:
    """Why the file cannot be used, or None as far as its format can tell. OSError if it cannot be read.

    Remembered for as long as size, time and inode stay, so that polling costs one `stat` a file.
    """
    suffix = PurePath(entry.path).suffix
    if suffix not in _CHECKED:
        return None
    if entry.size == 0:
        return "is empty"
    if suffix == ".json":
        try:
            jsons.load(entry)
        except jsons.JsonError as error:
            return str(error)
        return None
    if suffix == ".safetensors":
        return safetensors.fault(entry.path, entry.size)
    if suffix in _STREAMED:
        with Path(entry.path).open("rb") as file:
            return _STREAMED[suffix](file, entry.size)
    return _sniffed_fault(entry.path, entry.size)


def _sniffed_fault(path: str, size: int) -> str | None:
    with Path(path).open("rb") as file:
        start = file.read(4)
        if start.startswith(b"PK"):
            return zipped.fault(path)
        if start.startswith(b"\x80") or PurePath(path).suffix in (".pkl", ".pickle"):
            return legacy.fault(file, size)
    if PurePath(path).suffix in _ANYBODYS and len(start) == 4 and start != bytes(4):
        return None
    return "is neither a zip archive nor a pickle"
