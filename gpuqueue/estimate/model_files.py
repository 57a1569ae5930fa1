"""The files of a model's directory: JSON, and what safetensors headers tell without reading a weight."""

import json
from pathlib import Path
from typing import Any, NamedTuple

HEADER_LIMIT = 100 << 20  # the safetensors format's own limit
LFS = b"version https://git-lfs"  # how a pointer of git-lfs begins, in place of the file it stands for
INDEX = "model.safetensors.index.json"


class UnreadableModelError(ValueError):
    """A directory or file cannot be read as a model; the text names the file and what is missing."""


class Stored(NamedTuple):
    """What safetensors files hold: parameters, bytes, and the type of most of those bytes ("BF16")."""

    params: int
    size: int
    dtype: str


def check_not_pointer(path: Path, beginning: bytes) -> None:
    """Raises UnreadableModelError where a file begins like a pointer of git-lfs."""
    if beginning.startswith(LFS):
        raise UnreadableModelError(f"{path} is a git-lfs pointer, not the file itself: run `git lfs pull`")


def load_json(path: Path) -> dict[str, Any]:
    """The mapping in this file. Raises UnreadableModelError, FileNotFoundError."""
    try:
        data = path.read_bytes()
        check_not_pointer(path, data)
        loaded = json.loads(data.decode("utf-8-sig"))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnreadableModelError(f"{path} cannot be read: {error.strerror}") from error
    except RecursionError as error:
        raise UnreadableModelError(f"{path} cannot be read: nested too deeply") from error
    except ValueError as error:
        raise UnreadableModelError(f"{path} cannot be read: it is not JSON ({error})") from error
    if not isinstance(loaded, dict):
        raise UnreadableModelError(f"{path} holds no mapping")
    return loaded


def read_stored(directory: Path) -> Stored | None:
    """What the model's safetensors files hold together; None where there are none, or not all of them (yet)."""
    found: dict[str, int] = {}
    params = 0
    files = _shards(directory)
    for file in files:
        count, sizes = _header(file)
        params += count
        for dtype, size in sizes.items():
            found[dtype] = found.get(dtype, 0) + size
    if not found:
        return None
    return Stored(params, sum(found.values()), max(found, key=lambda dtype: found[dtype]))


def _shards(directory: Path) -> list[Path]:
    """The files that Transformers would load: those of the index, else model.safetensors, else all there are."""
    try:
        named = load_json(directory / INDEX).get("weight_map")
    except FileNotFoundError:
        whole = directory / "model.safetensors"
        return [whole] if whole.exists() else sorted(directory.glob("*.safetensors"))
    if not isinstance(named, dict) or not all(isinstance(name, str) for name in named.values()):
        raise UnreadableModelError(f"{directory / INDEX}: weight_map does not name a file for every tensor")
    shards = [directory / name for name in sorted(set(named.values()))]
    return shards if all(shard.exists() for shard in shards) else []


def _header(path: Path) -> tuple[int, dict[str, int]]:
    """(parameters, bytes by type) of one safetensors file."""
    try:
        with path.open("rb") as file:
            beginning = file.read(8)
            check_not_pointer(path, beginning + file.peek(len(LFS)))
            length = int.from_bytes(beginning, "little")
            if not 0 < length <= HEADER_LIMIT:
                raise UnreadableModelError(f"{path}: not a safetensors file (header of {length} bytes)")
            header = json.loads(file.read(length))
    except OSError as error:
        raise UnreadableModelError(f"{path} cannot be read: {error.strerror}") from error
    except UnreadableModelError:
        raise
    except (ValueError, RecursionError) as error:
        raise UnreadableModelError(f"{path}: its safetensors header is cut off or damaged") from error
    if not isinstance(header, dict):
        raise UnreadableModelError(f"{path}: its safetensors header holds no mapping")
    params, sizes = 0, dict[str, int]()
    for name, tensor in header.items():
        if name != "__metadata__":
            count, dtype, size = _tensor(path, name, tensor)
            params += count
            sizes[dtype] = sizes.get(dtype, 0) + size
    return params, sizes


def _tensor(path: Path, name: str, tensor: Any) -> tuple[int, str, int]:
    match tensor:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(end)]}:
            if all(isinstance(each, int) and each >= 0 for each in shape) and 0 <= start <= end:
                count = 1
                for each in shape:
                    count *= each
                return count, dtype, end - start
    raise UnreadableModelError(f"{path}: its safetensors header is damaged at tensor {name}")
