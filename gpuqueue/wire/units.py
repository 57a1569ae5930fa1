"""Sizes, durations and numbers of things as people write them; whole MiB and whole seconds (rule M1)."""

import re

MAX_VRAM_MIB = 16 * 1024 * 1024  # 16 TiB: above every card ever sold, below every overflow
MAX_DURATION_S = 366 * 24 * 3600

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt])(?:i?b)?", re.IGNORECASE)
_MIB_PER_UNIT = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024 * 1024}
_DURATION_PART = re.compile(r"(\d+)\s*(d|h|min|m|s)", re.IGNORECASE)
_SECONDS = {"d": 86400, "h": 3600, "min": 60, "m": 60, "s": 1}
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):(\d{2})(?::(\d{2}))?")


def parse_mib(text: str) -> int:
    """Whole MiB meant by `22G`, `22GiB`, `22GB`, `22g` or `22528M`: all binary units, as nvidia-smi and
    PyTorch print them. `0` alone is legal. Raises ValueError with one sentence that names the input."""
    written = text.strip()
    if written == "0":
        return 0
    match = _SIZE.fullmatch(written)
    if match is None:
        if re.fullmatch(r"\d+(?:\.\d+)?", written):
            raise ValueError(f"{text!r} has no unit: write {written}G or {written}M")
        raise ValueError(f"{text!r} is not a size: write for example 22G or 22528M")
    exact = float(match[1]) * _MIB_PER_UNIT[match[2].lower()]
    mib = round(exact)
    if abs(exact - mib) > 1e-6 * max(exact, 1):
        mib = int(exact) + 1  # never promise less than was asked for
    if mib < 1:
        raise ValueError(f"{text!r} is less than 1 MiB")
    if mib > MAX_VRAM_MIB:
        raise ValueError(f"{text!r} is more than any machine has")
    return mib


def format_mib(mib: int) -> str:
    """`22.0 GiB` from 1 GiB on, `512 MiB` below."""
    return f"{mib / 1024:.1f} GiB" if abs(mib) >= 1024 else f"{mib} MiB"


def counted(number: int, noun: str) -> str:
    """`1 run`, `4 runs`, `0 processes`."""
    plural = "es" if noun.endswith("s") else "s"
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{plural}"


def parse_seconds(text: str) -> int:
    """Whole seconds meant by `90s`, `30m`, `2h`, `1d12h`, `90` (seconds), `1:30:00` or Slurm's `1-12:00:00`.
    Raises ValueError with one sentence that names the input."""
    written = text.strip().lower()
    if written.isascii() and written.isdigit():
        seconds = int(written)
    elif clock := _CLOCK.fullmatch(written):
        days, first, second, third = (int(part or 0) for part in clock.groups())
        if clock[4] is None and not clock[1]:
            raise ValueError(f"{text!r} is ambiguous: write {first}h{second}m or {first}m{second}s")
        if clock[4] is None:  # Slurm's D-HH:MM
            seconds = days * 86400 + first * 3600 + second * 60
        else:
            seconds = days * 86400 + first * 3600 + second * 60 + third
    elif written and _DURATION_PART.sub("", written).strip() == "":
        seconds = sum(int(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(written))
    else:
        raise ValueError(f"{text!r} is not a duration: write for example 90s, 30m, 2h or 1d")
    if seconds > MAX_DURATION_S:
        raise ValueError(f"{text!r} is longer than a year")
    return seconds


def format_seconds(seconds: int) -> str:
    """The two largest units, as people say it: `2h05m`, `3m20s`, `45s`, `2d03h`."""
    sign, rest = ("-", -seconds) if seconds < 0 else ("", seconds)
    days, rest = divmod(rest, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    if days:
        return f"{sign}{days}d{hours:02d}h"
    if hours:
        return f"{sign}{hours}h{minutes:02d}m"
    if minutes:
        return f"{sign}{minutes}m{rest:02d}s"
    return f"{sign}{rest}s"
