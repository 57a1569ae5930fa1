"""The numbers in PyTorch's out-of-memory message, whatever release wrote it.

Wordings since 0.4, newest last:
  up to 1.0   cuda runtime error (2) : out of memory at ...THC...           (no numbers)
  up to 1.3   ... C total capacity; A already allocated; F free; Z cached)  (Z: held, but not in use)
  1.4 to 2.0  ... F free; [W allowed;] R reserved in total by PyTorch)      (R: A and what is held besides)
  from 2.1    ... total capa(ci)ty of C of which F is free. [W allowed;] [Process N has X memory in use.]*
              this process has Y ... A is allocated by PyTorch,
              and U is reserved by PyTorch but unallocated.
  cudaMallocAsync, a line each: Currently allocated: A, Requested: Q, Device limit: C,
              Free (according to CUDA): F, PyTorch limit (set by user-supplied memory fraction): W
"""

import re
from dataclasses import dataclass

_SIZE = r"(\d[\d,]*(?:\.\d+)?)\s?(bytes|B|[KMGTPE]i?B)"
_UNIT_KIB: dict[str, float] = {
    "b": 1 / 1024,
    "k": 1,
    "m": 1024,
    "g": 1024**2,
    "t": 1024**3,
    "p": 1024**4,
    "e": 1024**5,
}
_MAX_SANE_MIB = 64 * 1024 * 1024  # the driver's own nonsense ("17179869184.00 GiB") is above this
_NEXT_LINES = 6

_ASKED = re.compile(r"tried to allocate " + _SIZE + r"|\bRequested\s*: " + _SIZE, re.IGNORECASE)
_EXABYTE = re.compile(r"tried to allocate more than 1EB", re.IGNORECASE)
_CAPACITY = re.compile(_SIZE + r" total capacity|(?:total capa\w+ of |\bDevice limit\s*: )" + _SIZE)
_FREE = re.compile(_SIZE + r" (?:is )?free|\bFree \(according to CUDA\)\s*: " + _SIZE)
_ALLOCATED = re.compile(
    _SIZE + r" already allocated|allocated memory " + _SIZE + r" is allocated|\bCurrently allocated\s*: " + _SIZE
)
_UNUSED = re.compile(_SIZE + r" is reserved by PyTorch but unallocated|" + _SIZE + r" cached")
_RESERVED = re.compile(_SIZE + r" reserved in total")
_ALLOWED = re.compile(_SIZE + r" allowed|user-supplied memory fraction\)\s*: " + _SIZE)
_THIS_PROCESS = re.compile(r"this process has " + _SIZE + r" memory in use")
_SINCE_2_1 = re.compile(r"reserved by PyTorch but unallocated")
_PROCESS = re.compile(r"Process (\d+) has " + _SIZE + r" memory in use")


@dataclass(frozen=True, slots=True)
class TorchMessage:
    """All in MiB; None where the message does not say, or says nonsense."""

    asked_mib: int
    capacity_mib: int | None = None
    free_mib: int | None = None
    allocated_mib: int | None = None
    unused_mib: int | None = None
    allowed_mib: int | None = None
    this_process_mib: int | None = None
    processes: tuple[tuple[int, int], ...] = ()
    absurd: bool = False
    knows_expandable_segments: bool = False  # from 2.1; an older PyTorch dies of the unknown key

    @property
    def needed_mib(self) -> int | None:
        """What the process held and asked for; None where the message does not say what it held."""
        return None if self.own_mib is None or self.absurd else self.own_mib + self.asked_mib

    @property
    def own_mib(self) -> int | None:
        """What the job's process holds: its own figure where there is one, else what PyTorch holds."""
        held = None if self.allocated_mib is None else self.allocated_mib + (self.unused_mib or 0)
        known = [mib for mib in (held, self.this_process_mib) if mib is not None]
        return max(known) if known else None


def mib(number: str, unit: str) -> int:
    """The size in whole MiB, rounded to the nearest."""
    return round(float(number.replace(",", "")) * _UNIT_KIB[unit[0].lower()] / 1024)


def read(lines: tuple[str, ...], at: int) -> TorchMessage | None:
    """The message that starts on line `at`, wrapped by a narrow terminal or not; None where none does."""
    text = _unwrapped(lines, at)
    if _EXABYTE.search(text):
        return TorchMessage(_MAX_SANE_MIB, absurd=True)
    asked_mib = _found(_ASKED, text)
    if asked_mib is None:
        return None
    allocated, unused, reserved = _find(_ALLOCATED, text), _find(_UNUSED, text), _find(_RESERVED, text)
    if unused is None and reserved is not None:
        unused = max(0, reserved - (allocated or 0))
    this_process = _find(_THIS_PROCESS, text)
    return TorchMessage(
        asked_mib=asked_mib,
        capacity_mib=_find(_CAPACITY, text),
        free_mib=_find(_FREE, text),
        allocated_mib=allocated,
        unused_mib=unused,
        allowed_mib=_find(_ALLOWED, text),
        this_process_mib=this_process or None,  # "0 bytes": it cannot see itself
        processes=tuple(
            (int(pid), size)
            for pid, number, unit in _PROCESS.findall(text)
            if (size := mib(number, unit)) <= _MAX_SANE_MIB
        ),
        knows_expandable_segments=_SINCE_2_1.search(text) is not None,
    )


def _unwrapped(lines: tuple[str, ...], at: int) -> str:
    text = lines[at]
    for line in lines[at + 1 : at + 1 + _NEXT_LINES]:
        if "ried to allocate" in line or "Traceback" in line or not line.strip():
            break
        text = f"{text} {line.strip()}"
    return re.sub(r"\s+", " ", text)


def _found(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    if found is None:
        return None
    number, unit = [group for group in found.groups() if group is not None][:2]
    return mib(number, unit)


def _find(pattern: re.Pattern[str], text: str) -> int | None:
    size = _found(pattern, text)
    return size if size is not None and size <= _MAX_SANE_MIB else None
