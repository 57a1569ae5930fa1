"""Builds the stand-ins for NVIDIA's libnvidia-ml.so.1 and libcuda.so.1 and writes the
cards that they show: NVML tests without a GPU.

They are compiled once and shared by all tests of a machine. A daemon under test finds it by `environment`,
the test process itself by `load`; either way it is the real pynvml that talks to it.
"""

import ctypes
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpuqueue.gpu import simdir

SOURCES = Path(__file__).parent / "gpu" / "standin"
SONAME = "libnvidia-ml.so.1"
LIBRARIES = {SONAME: "nvml_standin.c", "libcuda.so.1": "cuda_standin.c"}
CARDS_ENV = "GQ_NVML_STANDIN"


@dataclass(kw_only=True)
class StandInProcess:
    pid: int
    mib: int
    kind: str = "C"  # C computes, G draws, B both
    hidden: bool = False  # holds it, and the driver does not tell


@dataclass(kw_only=True)
class StandInCard:
    """One card as the stand-in shows it. `used_mib` is what is used beyond the processes, which may be those
    listed here and, with a `simdir`, the simjobs that run there."""

    uuid: str
    bus: str
    total_mib: int = 32607
    reserved_mib: int = 0
    used_mib: int = 0
    name: str = "NVIDIA Stand-in"
    minor: int = 0
    util: int = 0
    temperature: int = 40
    slowdown: int | None = 93
    margin: int = 40
    processes: Sequence[StandInProcess] = ()
    samples: Sequence[tuple[int, int, int]] = ()  # pid, microsecond, percent
    faults: Mapping[str, int] = field(default_factory=dict)  # function -> NVML error code
    simdir: Path | None = None


def library_directory(driver: str | None = None) -> Path:
    """The directory that holds the compiled libraries; with `driver`, of that driver alone. Raises RuntimeError
    where there is no C compiler: these tests are never skipped for the want of one."""
    command = [*_compiler(), "-shared", "-fPIC", "-O1", "-Wall"]
    if driver is not None:
        command.append(f'-DSTANDIN_DRIVER="{driver}"')
    sources = b"".join((SOURCES / source).read_bytes() for source in LIBRARIES.values())
    key = hashlib.sha256(sources + repr(command).encode()).hexdigest()[:16]
    directory = Path(tempfile.gettempdir()) / f"gpuqueue-nvml-standin-{os.getuid()}-{key}"
    directory.mkdir(mode=0o755, exist_ok=True)
    if directory.stat().st_uid != os.getuid():
        raise RuntimeError(f"{directory} belongs to somebody else: remove it")
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for soname, source in LIBRARIES.items():
            if not (directory / soname).exists():
                unfinished = directory / "unfinished.so"
                named = [f"-Wl,-soname,{soname}", "-o", str(unfinished), str(SOURCES / source)]
                subprocess.run([*command, *named], check=True)
                unfinished.replace(directory / soname)
    return directory


def environment(cards_file: Path, driver: str | None = None) -> dict[str, str]:
    """What a process needs in its environment for pynvml to find the stand-in and these cards."""
    return {"LD_LIBRARY_PATH": str(library_directory(driver)), CARDS_ENV: str(cards_file)}


def load() -> None:
    """Makes pynvml in this very process find the stand-in: the loader knows a library by its soname."""
    ctypes.CDLL(str(library_directory() / SONAME))


def write_cards(
    path: Path,
    cards: Sequence[StandInCard],
    *,
    driver: str = "580.65.06",
    faults: Mapping[str, int] | None = None,
) -> None:
    """Replaces the world that the stand-in shows, in NVML's order; `faults` are the node's. What simjob needs
    to find the same cards goes into each `simdir`."""
    lines = [f"driver {driver}", *(f"fault {function} {code}" for function, code in (faults or {}).items())]
    for card in cards:
        lines += _lines(card)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text("\n".join(lines) + "\n")
    temporary.replace(path)
    for directory in {card.simdir for card in cards if card.simdir is not None}:
        there = sorted((card for card in cards if card.simdir == directory), key=lambda card: card.bus)
        simdir.create(directory, [_sim_card(card) for card in there])


def _lines(card: StandInCard) -> list[str]:
    lines = [f"card {card.uuid}"]
    for word in ("bus", "name", "minor", "util", "temperature", "margin"):
        lines.append(f"{word} {getattr(card, word)}")
    lines += [f"total {card.total_mib}", f"reserved {card.reserved_mib}", f"used {card.used_mib}"]
    if card.slowdown is not None:
        lines.append(f"slowdown {card.slowdown}")
    if card.simdir is not None:
        lines.append(f"simdir {card.simdir}")
    for process in card.processes:
        lines.append(f"process {process.pid} {'hidden:' * process.hidden}{process.mib} {process.kind}")
    lines += [f"sample {pid} {at_us} {percent}" for pid, at_us, percent in card.samples]
    return lines + [f"fault {function} {code}" for function, code in card.faults.items()]


def _sim_card(card: StandInCard) -> simdir.SimCard:
    return simdir.SimCard(
        uuid=card.uuid,
        name=card.name,
        pci_bus_id=card.bus,
        total_mib=card.total_mib,
        reserved_mib=card.reserved_mib + card.used_mib,
    )


def _compiler() -> list[str]:
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and shutil.which(name):
            return [name]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc"]
    raise RuntimeError("no C compiler for the NVML stand-in: install gcc or clang, or `pip install ziglang`")
