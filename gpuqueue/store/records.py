"""Frozen dataclasses to JSON text and back, guided by their type hints alone.

A field that the text lacks takes its default, one that the dataclass lacks is passed over: a new field with a
default needs no migration. Lone surrogates (bytes of an environment that are not UTF-8) survive, because JSON
escapes them.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def encode(record: Any, without: tuple[str, ...] = ()) -> str:
    """The record as JSON text, less the fields named in `without`."""
    values = {name: value for name, value in _plain(record).items() if name not in without}
    return json.dumps(values, default=_plain, separators=(",", ":"))


def decode(kind: type[T], text: str, **extra: Any) -> T:
    """The record that `text` holds; `extra` gives the fields that are kept elsewhere.
    Raises ValueError, TypeError or KeyError where the text is not such a record."""
    hint: Any = kind
    made: T = _reader(hint)(json.loads(text) | extra)
    return made


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"a {type(value).__name__} has no place in a record")


def _as_it_is(value: Any) -> Any:
    return value


@cache
def _reader(hint: Any) -> Callable[[Any], Any]:
    """What turns a JSON value into one of type `hint`."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _dataclass_reader(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _optional_reader(arguments)
    if origin in (tuple, frozenset):
        item = _reader(arguments[0])
        return origin if item is _as_it_is else lambda value: origin(item(part) for part in value)
    if origin is list and _reader(arguments[0]) is not _as_it_is:
        item = _reader(arguments[0])
        return lambda value: [item(part) for part in value]
    return _as_it_is


def _optional_reader(arguments: tuple[Any, ...]) -> Callable[[Any], Any]:
    readers = [_reader(argument) for argument in arguments if argument is not type(None)]
    if all(reader is _as_it_is for reader in readers):
        return _as_it_is
    if len(readers) > 1:
        raise TypeError(f"cannot tell {arguments} apart in JSON")
    return lambda value: None if value is None else readers[0](value)


def _dataclass_reader(kind: type) -> Callable[[Any], Any]:
    hints = get_type_hints(kind)
    readers = {field.name: _reader(hints[field.name]) for field in dataclasses.fields(kind)}
    plain = frozenset(name for name, reader in readers.items() if reader is _as_it_is)

    def read(values: Any) -> Any:
        if not isinstance(values, dict):
            raise TypeError(f"{values!r} is not a record of {kind.__name__}")
        return kind(
            **{
                name: value if name in plain else readers[name](value)
                for name, value in values.items()
                if name in readers
            }
        )

    return read
