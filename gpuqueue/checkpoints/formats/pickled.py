"""Pickles without running them: is one whole, and what plain data does it hold?

A pickle is a program; loading one runs whatever it names. Here opcodes are walked, and where data is
needed (which files a `.metadata` names, the step in a `.ckpt`) it is built from inert stand-ins: no name in
the pickle is ever looked up.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import struct
from typing import Any, BinaryIO

MAX_OPCODES = 500_000
MAX_LOADED = 128 << 20
_SIZES = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_OPCODES = {ord(op.code): (op.name, op.arg.n if op.arg else 0) for op in pickletools.opcodes}
_PUTS = {"PUT", "BINPUT", "LONG_BINPUT"}


class PickleError(ValueError):
    """The pickle ends early or is damaged."""


class TooLongError(PickleError):
    """The pickle is longer than this room is willing to walk; it may well be whole."""


def skip(file: BinaryIO, size: int) -> None:
    """Moves `file` past one pickle; raises PickleError where it does not end within `size` bytes."""
    for count in range(MAX_OPCODES):
        code = file.read(1)
        if not code:
            raise PickleError("ends before its last opcode")
        try:
            name, width = _OPCODES[code[0]]
        except KeyError:
            raise PickleError("holds a byte that is no opcode") from None
        if width == pickletools.UP_TO_NEWLINE:
            lines = 2 if name in ("GLOBAL", "INST") else 1
            line = b""
            for _ in range(lines):
                line = file.readline(1 << 20)
                if not line.endswith(b"\n"):
                    raise PickleError("ends within a line")
            if name == "PUT":
                _bound_memo(int(line) if line.strip().isdigit() else count + 1, count)
            continue
        if width < 0:
            counted = file.read(_SIZES[width])
            if len(counted) < _SIZES[width]:
                raise PickleError("ends within a length")
            width = int.from_bytes(counted, "little")
            if file.tell() + width > size:
                raise PickleError("ends within its data")
            file.seek(width, io.SEEK_CUR)
            continue
        argument = file.read(width)
        if len(argument) < width:
            raise PickleError("ends within an argument")
        if name in _PUTS:
            _bound_memo(int.from_bytes(argument, "little"), count)
        if name == "STOP":
            return
    raise TooLongError("has too many opcodes to check")


def _bound_memo(index: int, count: int) -> None:
    # The unpickler grows its memo to the largest index named: one opcode could ask for gigabytes.
    if index > count:
        raise PickleError("has an absurd memo index")


class Inert:
    """Stands for any object of a pickle: keeps its arguments and state, does nothing."""

    args: tuple[Any, ...] = ()
    state: Any = None
    items: dict[Any, Any] | None = None

    def __new__(cls, *args: Any, **_: Any) -> Inert:
        made = super().__new__(cls)
        made.args = args
        return made

    def __init__(self, *_: Any, **__: Any) -> None:
        """Takes what the real class would have taken."""

    def __call__(self, *args: Any, **_: Any) -> Inert:
        return Inert(*args)

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __hash__(self) -> int:
        return id(self)

    def append(self, _: Any) -> None:
        """A list-like object being filled."""

    def extend(self, _: Any) -> None:
        """A list-like object being filled."""

    def __setitem__(self, key: Any, value: Any) -> None:
        if self.items is None:
            self.items = {}
        self.items[key] = value

    def get(self, key: str) -> Any:
        """The attribute or item `key` that the real object would have, None where it has none."""
        states = self.state if isinstance(self.state, tuple) else (self.state,)
        for state in (self.items, *states):
            if isinstance(state, dict) and key in state:
                return state[key]
        return None


class Mapping(dict[Any, Any]):
    """Stands for a dictionary subclass that may carry attributes too (OrderedDict, defaultdict)."""

    def __init__(self, *args: Any) -> None:
        super().__init__(args[-1] if args and isinstance(args[-1], dict | list) else ())

    def __setstate__(self, _: Any) -> None:
        """The attributes are of no interest here."""


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file, encoding="latin-1")
        self.persistent: list[Any] = []

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (("collections", "OrderedDict"), ("collections", "defaultdict")):
            return Mapping
        return type(name, (Inert,), {"__module__": module})

    def persistent_load(self, pid: Any) -> Any:
        self.persistent.append(pid)
        return Inert()


def load(data: bytes) -> Any:
    """The plain data of a pickle, everything else as `Inert`. PickleError where it cannot be had."""
    return load_next(io.BytesIO(data), len(data))[0]


def load_next(file: BinaryIO, size: int) -> tuple[Any, list[Any]]:
    """As `load`, for the pickle that starts where `file` stands, with its persistent ids in order."""
    start = file.tell()
    skip(file, size)
    end = file.tell()
    file.seek(start)
    if end - start > MAX_LOADED:
        raise TooLongError("is too long to read")
    reader = _Unpickler(io.BytesIO(file.read(end - start)))
    try:
        return reader.load(), reader.persistent
    except (
        pickle.UnpicklingError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        EOFError,
    ) as e:
        raise PickleError(f"cannot be read: {e}") from e
    except (struct.error, OverflowError, RecursionError, ImportError, MemoryError) as e:
        raise PickleError(f"cannot be read: {e}") from e


def field(value: Any, key: str) -> Any:
    """`value[key]` or `value.key` of loaded data, None where there is none."""
    if isinstance(value, dict):
        return value.get(key)
    if isinstance(value, Inert):
        return value.get(key)
    return None
