"""Xid: what the NVIDIA driver writes into the kernel log, and what each number asks for (H1).

The classes follow NVIDIA's published catalogue. A number that is not in the table is `unknown`: noted,
acted upon by nobody.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class XidClass(StrEnum):
    """What an Xid asks of the scheduler."""

    hardware = "hardware"  # drain the card, requeue what ran there free of charge
    contained = "contained"  # memory error confined to one job: requeue that job, drain if it repeats
    application = "application"  # evidence about the job, unless it repeats on a card with different jobs
    note = "note"  # write down; nothing to do before the next idle moment
    follows = "follows"  # caused by the Xid before it, says nothing alone
    unknown = "unknown"


@dataclass(frozen=True, slots=True)
class Xid:
    """One row of the catalogue."""

    kind: XidClass
    meaning: str


_HARDWARE, _APPLICATION, _NOTE = XidClass.hardware, XidClass.application, XidClass.note

TABLE: dict[int, Xid] = {
    13: Xid(_APPLICATION, "graphics engine exception: the program made the card do something illegal"),
    31: Xid(_APPLICATION, "memory page fault: the program used an address that it does not own"),
    32: Xid(_APPLICATION, "invalid or corrupted push buffer stream"),
    39: Xid(_APPLICATION, "copy engine exception"),
    40: Xid(_APPLICATION, "copy engine exception"),
    41: Xid(_APPLICATION, "copy engine exception"),
    43: Xid(_APPLICATION, "the program's channel was stopped; the card is fine"),
    45: Xid(XidClass.follows, "channels cleaned up after an earlier error"),
    46: Xid(_HARDWARE, "the card stopped processing"),
    48: Xid(_HARDWARE, "double-bit ECC error"),
    62: Xid(_HARDWARE, "internal micro-controller halt"),
    63: Xid(_NOTE, "memory row remapping recorded; it takes effect at the next reset"),
    64: Xid(_HARDWARE, "memory row remapping could not be recorded"),
    69: Xid(_APPLICATION, "graphics engine class error"),
    74: Xid(_HARDWARE, "NVLink error"),
    79: Xid(_HARDWARE, "the card has fallen off the bus"),
    92: Xid(_NOTE, "high rate of corrected single-bit ECC errors"),
    94: Xid(XidClass.contained, "uncorrectable memory error, contained to one program"),
    95: Xid(_HARDWARE, "uncorrectable memory error, not contained"),
    109: Xid(_HARDWARE, "context switch timed out"),
    119: Xid(_HARDWARE, "the card's system processor did not answer in time"),
    120: Xid(_HARDWARE, "the card's system processor reported an error"),
    140: Xid(_HARDWARE, "unrecovered ECC error"),
    143: Xid(_HARDWARE, "the card could not be initialised"),
    154: Xid(_HARDWARE, "the card asks for a recovery action"),
    158: Xid(_HARDWARE, "fatal time-out inside the card"),
    **{number: Xid(_HARDWARE, "NVLink error") for number in range(144, 151)},
}
_ONLY_IF_FATAL = frozenset({74, *range(144, 151)})
_RECOVERY_ACTION = 154
FALLEN_OFF_THE_BUS = 79

_LINE = re.compile(r"NVRM: Xid \(((?:PCI:)?[0-9a-fA-F:.]+)\).*?: (\d+),\s*(.*)")
_FALLEN = re.compile(r"GPU (?:at )?(?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.\d)?)")
_PID = re.compile(r"\bpid='?(\d+)")
_NOT_FATAL = re.compile(r"non-?\s?fatal", re.IGNORECASE)
_FATAL = re.compile(r"\bfatal\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class XidEvent:
    """One Xid line: the card by `pci` (domain:bus:device, lower case), the number, the driver's words."""

    pci: str
    number: int
    text: str
    line: str
    pid: int | None = None

    @property
    def kind(self) -> XidClass:
        """What the event asks for; NVLink errors and recovery actions by their text."""
        return classify(self.number, self.text)

    @property
    def meaning(self) -> str:
        """The number in plain words."""
        return TABLE[self.number].meaning if self.number in TABLE else "not in the table"


def classify(number: int, text: str = "") -> XidClass:
    """The class of an Xid; `text` is what the driver wrote after the number."""
    if number not in TABLE:
        return XidClass.unknown
    if number in _ONLY_IF_FATAL and (_NOT_FATAL.search(text) or not _FATAL.search(text)):
        return XidClass.note
    if number == _RECOVERY_ACTION and "none" in text.lower().rpartition(" to ")[2]:
        return XidClass.note  # "changed from (GPU Reset Required) to (None)": it is over
    return TABLE[number].kind


def pci_address(text: str) -> str:
    """A bus id in one form, as `0000:b3:00`, from the kernel's or NVML's; "" where it is none."""
    parts = re.split(r"[:.]", text.upper().removeprefix("PCI:"))
    if len(parts) == 2:  # bus:device, as old drivers wrote it
        parts = ["0", *parts]
    try:
        domain, bus, device = (int(part, 16) for part in parts[:3])
    except ValueError:
        return ""
    return f"{domain:04x}:{bus:02x}:{device:02x}"


def parse(line: str) -> XidEvent | None:
    """The Xid in one line of the kernel log, or None."""
    found = _LINE.search(line)
    if found:
        pid = _PID.search(found[3])
        return XidEvent(
            pci_address(found[1]), int(found[2]), found[3].strip(), line.strip(), int(pid[1]) if pid else None
        )
    if "fallen off the bus" in line:
        # Newer drivers say so without an Xid number; the address may stand on an earlier line.
        card = _FALLEN.search(line)
        return XidEvent(pci_address(card[1]) if card else "", FALLEN_OFF_THE_BUS, "fallen off the bus", line.strip())
    return None


def parse_all(lines: Iterable[str]) -> tuple[XidEvent, ...]:
    """Every Xid of a piece of kernel log, a report that is spread over three lines included."""
    events: list[XidEvent] = []
    card = ""
    for line in lines:
        named = _FALLEN.search(line) if "NVRM" in line else None
        card = pci_address(named[1]) if named else card
        event = parse(line)
        if event is None:
            continue
        if not event.pci:
            event = XidEvent(card, event.number, event.text, event.line, event.pid)
        events.append(event)
    return tuple(events)
