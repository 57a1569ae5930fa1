"""One TOML value to one whole number, word or list. Each reader raises ValueError with a sentence that names
the input and the way out; the unit rules are those of `wire.units`."""

import math
import re
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

from gpuqueue.wire.units import parse_mib, parse_seconds

Reader = Callable[[Any], Any]

_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")


def size(value: Any) -> int:
    """`"20G"`: whole MiB."""
    if isinstance(value, str):
        return parse_mib(value)
    if type(value) is int and value == 0:
        return 0
    raise ValueError(f'{_shown(value)} is not a size: write it in quotes with its unit, for example "20G"')


def rate(value: Any) -> int:
    """`"1M"`, a second: whole KiB."""
    if isinstance(value, str) and (kib := re.fullmatch(r"(\d+)\s*k(?:i?b)?", value.strip(), re.IGNORECASE)):
        return int(kib[1])
    return size(value) * 1024


def duration(value: Any) -> int:
    """`"30m"`, or a whole number of seconds."""
    if isinstance(value, str):
        return parse_seconds(value)
    if type(value) is int and value >= 0:
        return parse_seconds(str(value))
    raise ValueError(f'{_shown(value)} is not a duration: write for example "30m" or "2h"')


def days(value: Any) -> int:
    seconds = duration(value)
    if seconds == 0 or seconds % 86400:
        raise ValueError(f'{_shown(value)} is not a number of days: write for example "30d"')
    return seconds // 86400


def parts(per_whole: int) -> Reader:
    """`"28%"` in whole parts of `per_whole`: 100 for percent, 1000 for per mille."""

    def read(value: Any) -> int:
        match = _PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None:
            raise ValueError(f'{_shown(value)} is not a share: write for example "5%"')
        share = float(match[1]) * per_whole / 100
        if share > per_whole:
            raise ValueError(f"{_shown(value)} is more than 100%")
        if share != int(share):
            raise ValueError(f"{_shown(value)} is finer than {100 / per_whole:g}%")
        return int(share)

    return read


def millicores(value: Any) -> int:
    """`0.5` CPU cores: thousandths."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{_shown(value)} is not a number of CPU cores: write for example 0.5")
    return round(value * 1000)


def count(least: int) -> Reader:
    def read(value: Any) -> int:
        if type(value) is not int or value < least:
            raise ValueError(f"{_shown(value)} is not a whole number from {least} up")
        return value

    return read


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{_shown(value)} is not true or false")
    return value


def word(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{_shown(value)} is not a name in quotes")
    return value


def words(value: Any) -> frozenset[str]:
    if not isinstance(value, list):
        raise ValueError(f'{_shown(value)} is not a list: write for example ["ann", "ben"]')
    return frozenset(word(item) for item in value)


def sizes(value: Any) -> tuple[int, ...]:
    """`["32607M"]`; each more than nothing."""
    if not isinstance(value, list):
        raise ValueError(f'{_shown(value)} is not a list: write for example ["32607M"]')
    read = tuple(size(item) for item in value)
    if 0 in read:
        raise ValueError("a card of size 0 is none")
    return read


def one_of(*choices: str) -> Reader:
    def read(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"{_shown(value)} is not one of {', '.join(choices)}")
        return str(value)

    return read


def member(kind: type[StrEnum]) -> Reader:
    known = one_of(*kind)
    return lambda value: kind(known(value))


def path(value: Any) -> Path:
    """Absolute, or under `~`."""
    written = Path(word(value)).expanduser()
    if not written.is_absolute():
        raise ValueError(f"{_shown(value)} is not an absolute path")
    return written


def file_mode(value: Any) -> int:
    """`"0660"`."""
    if not isinstance(value, str) or not re.fullmatch(r"0?[0-7]{3}", value):
        raise ValueError(f'{_shown(value)} is not a file mode: write it in quotes, for example "0660"')
    return int(value, 8)


def _shown(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
