"""How much of a card a bare CUDA context takes: made by a process of its own, read through the cards' provider.

Driver, card and CUDA version decide it (some hundred MiB), so it is measured once a node and not guessed. What a
framework's own kernels take on top is not in it.
"""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gpuqueue.core.readings import CardReading, NodeReading

ANSWER_WITHIN_S = 30.0  # the first context after a boot loads the driver's modules
END_WITHIN_S = 5.0
STEADY_S = 0.2  # between two readings that must agree
FILE = "cuda_context.json"  # in the state directory: MiB by the card's UUID

# Isolated and stdlib only. It holds the context until its standard input ends, with the parent at the latest.
_PROGRAM = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    status = getattr(cuda, name)(*arguments)
    if status:
        sys.exit(f"{name} answered {status}")
context, device = ctypes.c_void_p(), ctypes.c_int()
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
print("ready", flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """`mib` is None where it could not be measured; `how` says what was read, or why there is nothing."""

    mib: int | None
    how: str


class _Unmeasured(Exception):
    """Why not, in one line."""


def measure(read: Callable[[], NodeReading], uuid: str, within_s: float = ANSWER_WITHIN_S) -> Measured:
    """A context on that card. Where the driver hides who holds what, it is what the card's use grew by, if that is the
    same before and after."""
    try:
        idle_mib = _card(read, uuid).used_mib
        with _holding(uuid, within_s) as pid:
            card = _card(read, uuid)
            own = next((process.used_mib for process in card.processes or () if process.pid == pid), None)
            if own:
                return Measured(own, "NVML of the process")
            time.sleep(STEADY_S)
            held_mib = {card.used_mib, _card(read, uuid).used_mib}
        if held_mib == {idle_mib}:
            raise _Unmeasured("the driver does not tell what the context holds")
        if len(held_mib) != 1 or not _back_at(read, uuid, idle_mib):
            raise _Unmeasured("the driver hides who holds what, and the card's use does not keep still")
        return Measured(held_mib.pop() - idle_mib, "the growth of the card's use: the driver hides who holds what")
    except _Unmeasured as why:
        return Measured(None, str(why))


def _card(read: Callable[[], NodeReading], uuid: str) -> CardReading:
    card = next((card for card in read().cards if card.uuid == uuid and card.fault is None), None)
    if card is None:
        raise _Unmeasured("the card cannot be read")
    return card


def _back_at(read: Callable[[], NodeReading], uuid: str, idle_mib: int) -> bool:
    """Whether the card's use is what it was; a driver may take a moment to let go."""
    deadline = time.monotonic() + END_WITHIN_S
    while _card(read, uuid).used_mib != idle_mib:
        if time.monotonic() > deadline:
            return False
        time.sleep(STEADY_S)
    return True


@contextmanager
def _holding(uuid: str, within_s: float) -> Iterator[int]:
    """The pid of a process with a context on that card and nothing else. A program of its own, since a driver can hang
    or crash whoever asks it (H1)."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": uuid, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        if not select.select([process.stdout], [], [], within_s)[0]:
            raise _Unmeasured(f"the CUDA driver did not answer within {within_s:g} s")
        if process.stdout.readline() != b"ready\n":
            said = process.stderr.read().decode(errors="replace").strip().splitlines()
            raise _Unmeasured(said[-1] if said else "the CUDA driver ended the process")
        yield process.pid
    finally:
        process.kill()
        with suppress(subprocess.TimeoutExpired):  # within the driver not even SIGKILL ends it at once
            process.communicate(timeout=END_WITHIN_S)


def keep(state_dir: Path, contexts: dict[str, int]) -> None:
    """Over what was measured before, whole or not at all."""
    temporary = state_dir / f"{FILE}.new"
    temporary.write_text(json.dumps(kept(state_dir) | contexts), encoding="utf-8")
    temporary.replace(state_dir / FILE)


def kept(state_dir: Path) -> dict[str, int]:
    """MiB by the card's UUID; empty where nothing was measured, or the file cannot be read."""
    with suppress(OSError, ValueError):
        found = json.loads((state_dir / FILE).read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return {uuid: mib for uuid, mib in found.items() if type(mib) is int and mib > 0}
    return {}
