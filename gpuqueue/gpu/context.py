"""How much of a card a bare CUDA context takes: made by a process of its own, read through the cards' provider.

Driver, card and CUDA version decide it (some hundred MiB), so it is measured once a node and not guessed. What a
framework's own kernels take on top is not in it.
"""

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gpuqueue.core.readings import CardReading, NodeReading

ANSWER_WITHIN_S = 30  # the first context after a boot loads the driver's modules
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
    """`mib` is None where it could not be measured, and `why` says so."""

    mib: int | None
    why: str = ""


def measure(read: Callable[[], NodeReading], uuid: str) -> Measured:
    """A context on that card. Where the driver hides who holds what, it is what the card's use grew by."""
    before = _card(read(), uuid)
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": uuid, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        if not select.select([process.stdout], [], [], ANSWER_WITHIN_S)[0]:
            return Measured(None, f"the CUDA driver did not answer within {ANSWER_WITHIN_S} s")
        if process.stdout.readline() != b"ready\n":
            said = process.stderr.read().decode(errors="replace").strip().splitlines()
            return Measured(None, said[-1] if said else "the CUDA driver ended the process")
        return _held(before, _card(read(), uuid), process.pid)
    finally:
        process.kill()
        process.communicate()


def _card(reading: NodeReading, uuid: str) -> CardReading | None:
    return next((card for card in reading.cards if card.uuid == uuid and card.fault is None), None)


def _held(before: CardReading | None, now: CardReading | None, pid: int) -> Measured:
    if now is None or before is None:
        return Measured(None, "the card could not be read meanwhile")
    own = [process.used_mib for process in now.processes or () if process.pid == pid]
    if own and own[0] is not None:
        return Measured(own[0])
    grown_mib = now.used_mib - before.used_mib
    if grown_mib > 0:
        return Measured(grown_mib, "by what the card's use grew: the driver hides who holds what")
    return Measured(None, "the driver does not tell what the context holds")


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
