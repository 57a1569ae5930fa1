"""The directory in which simulated cards live: all that SimulatedCards and the stand-in trainings share.

    cards.json   the daemon's: the cards, in PCI order
    lock         the daemon's: locked (flock) while somebody takes VRAM, so that taking is atomic
    use/         everybody's, sticky: one file a process and card, PID.START_TICKS.CARD_UUID,
                 holding "VRAM_MIB GPU_PERCENT"

As on a real card, VRAM belongs to a process and is free the moment it is dead: a file counts only while the
process that it names lives and belongs to the file's owner. Nobody can therefore hold VRAM in the name of
somebody else's process, and nothing is leaked by SIGKILL. Whoever reads trusts no file. Standard library only.
"""

import contextlib
import fcntl
import json
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

CARDS, LOCK, USE_DIR = "cards.json", "lock", "use"
SIM_DIR_ENV = "GQ_SIM_DIR"
_LARGEST_USE_FILE = 64


class SimDirError(Exception):
    """The directory of the simulated cards cannot be used: {0}."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimCard:
    uuid: str
    name: str
    pci_bus_id: str
    total_mib: int
    reserved_mib: int = 0

    @property
    def capacity_mib(self) -> int:
        return self.total_mib - self.reserved_mib


@dataclass(frozen=True, slots=True, kw_only=True)
class SimUse:
    """What one live process holds on one card."""

    pid: int
    card: str  # UUID
    vram_mib: int
    gpu_percent: int


class CardFull(Exception):
    """Card {card.uuid} has not that much VRAM free: `free_mib` is left, `others` hold the rest."""

    def __init__(self, card: SimCard, free_mib: int, others: Sequence[SimUse]) -> None:
        super().__init__(f"{card.name}: {free_mib} MiB free")
        self.card = card
        self.free_mib = free_mib
        self.others = tuple(others)


def create(directory: Path, cards: Sequence[SimCard]) -> None:
    """Makes the directory, or takes over one that is there: what processes hold in it goes on."""
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    directory.chmod(0o755)
    use = directory / USE_DIR
    use.mkdir(exist_ok=True)
    use.chmod(0o1777)
    lock = directory / LOCK
    lock.touch()
    lock.chmod(0o644)
    temporary = directory / (CARDS + ".tmp")
    temporary.write_text(json.dumps([asdict(card) for card in cards], indent=1))
    temporary.chmod(0o644)
    temporary.replace(directory / CARDS)


def load_cards(directory: Path) -> list[SimCard]:
    """The cards in PCI order. Raises SimDirError with one sentence."""
    try:
        return [SimCard(**card) for card in json.loads((directory / CARDS).read_text())]
    except FileNotFoundError as error:
        raise SimDirError(f"no simulated cards in {directory}: `gpuqueued serve --simulate` makes them") from error
    except (OSError, ValueError, TypeError) as error:
        raise SimDirError(f"cannot read {directory / CARDS}: {error}") from error


def uses(directory: Path) -> list[SimUse]:
    """What live processes hold, by pid. Raises OSError where the directory itself cannot be read."""
    found = (_read_use(path) for path in (directory / USE_DIR).iterdir())
    return sorted((use for use in found if use is not None), key=lambda use: (use.pid, use.card))


def sweep(directory: Path) -> None:
    """Deletes the files of processes that are dead; for the directory's owner, whom the sticky bit lets."""
    for path in (directory / USE_DIR).iterdir():
        identity = _identity_in(path.name)
        if identity is not None and _start_ticks(identity[0]) != identity[1]:
            with contextlib.suppress(OSError):  # a directory of such a name is some user's joke
                path.unlink(missing_ok=True)


def take(directory: Path, card: SimCard, vram_mib: int, gpu_percent: int) -> None:
    """From now on this process holds `vram_mib` on the card (in place of what it held), or CardFull is raised
    and nothing has changed. Atomic among processes of all users. 0 gives everything back."""
    pid = os.getpid()
    own = directory / USE_DIR / f"{pid}.{_start_ticks(pid)}.{card.uuid}"
    with _locked(directory):
        others = [use for use in uses(directory) if use.card == card.uuid and use.pid != pid]
        free_mib = card.capacity_mib - sum(use.vram_mib for use in others)
        if vram_mib > free_mib:
            raise CardFull(card, max(free_mib, 0), others)
        if vram_mib == 0:
            own.unlink(missing_ok=True)
            return
        temporary = own.with_name("." + own.name)
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        with os.fdopen(descriptor, "w") as file:
            os.fchmod(descriptor, 0o644)  # readable by the others whatever the umask
            file.write(f"{vram_mib} {min(max(gpu_percent, 0), 100)}\n")
        temporary.replace(own)


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _identity_in(name: str) -> tuple[int, int, str] | None:
    pid, _, rest = name.partition(".")
    ticks, _, card = rest.partition(".")
    if pid.isascii() and pid.isdigit() and ticks.isascii() and ticks.isdigit() and len(name) < 128:
        return int(pid), int(ticks), card
    return None


def _start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat; None for a process that is gone or a zombie, whose VRAM is free."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _uid(pid: int) -> int | None:
    """The effective uid; /proc/PID itself belongs to root where the process is not dumpable."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[2]) for line in lines if line.startswith("Uid:")), None)


def _read_use(path: Path) -> SimUse | None:
    identity = _identity_in(path.name)
    if identity is None or _start_ticks(identity[0]) != identity[1]:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None  # gone since it was listed, a link, or unreadable: it counts for nobody
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != _uid(identity[0]):
            return None
        words = os.read(descriptor, _LARGEST_USE_FILE).split()
    finally:
        os.close(descriptor)
    if len(words) != 2 or not all(word.isdigit() and len(word) < 10 for word in words):
        return None
    return SimUse(pid=identity[0], card=identity[2], vram_mib=int(words[0]), gpu_percent=min(int(words[1]), 100))
