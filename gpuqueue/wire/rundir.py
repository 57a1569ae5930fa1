"""The run directory: the memory between daemon and shim, one directory an attempt.

    spec.json      daemon   before the shim starts
    claim.json     shim     made once, never overwritten: who may run this attempt (the daemon: nobody may)
    alive.json     shim     before the job's first instruction
    say.jsonl      daemon   sentences for the job's log, appended
    stop.json      daemon   the stop order; a newer one replaces it
    heard.json     shim     how much of the two above was carried out, for an adopter
    progress.json  shim     newest checkpoint, what was skipped
    exit.json      shim     how it ended; written once, last
    *.reserved     daemon   room for stop.json and exit.json, which a full disk must not prevent
    monitor.lock   shim     locked by the shim or adopter that watches
    shim.err       shim     its own trouble, for the admin
    user/          the job's owner: output.log, the copy of the script, and what a helper inside the job reports

Beside the run directories lies `wake.sock`, a datagram socket of the daemon's: a shim that has news sends
the name of its run directory there, and does not care whether anybody listens.

The records belong to the daemon's user (mode 0600); only `user/` is the job owner's. Each record is written
to a temporary name, fsynced and renamed, so a reader sees a whole record or none. PROTOCOL counts changes;
the daemon speaks this one and the one before.
"""

import json
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

PROTOCOL = 1

SPEC, CLAIM, ALIVE, SAY, STOP, HEARD, PROGRESS, EXIT = (
    "spec.json",
    "claim.json",
    "alive.json",
    "say.jsonl",
    "stop.json",
    "heard.json",
    "progress.json",
    "exit.json",
)
LOCK, ERRORS, WAKE_SOCKET = "monitor.lock", "shim.err", "wake.sock"
USER_DIR, LOG, SCRIPT, REPORT = "user", "output.log", "script", "report.json"
MARKER_ENV = "GQ_ATTEMPT_MARKER"
RESERVED_BYTES = 16384


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A process for good: a pid alone is reused, a pid with boot id and start ticks is not.
    `start_ticks` is field 22 of /proc/PID/stat."""

    boot_id: str
    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """Everything the shim needs; it reads nothing else of the daemon's."""

    job_id: int
    attempt: int
    marker: str  # random, in the job's environment as GQ_ATTEMPT_MARKER: finds escaped children
    user: str
    uid: int
    gid: int
    groups: list[int]
    argv: list[str]  # the command, or the script's arguments
    script: str | None
    script_name: str | None
    cwd: str
    env: dict[str, str]  # complete: the submitter's, with the daemon's own on top
    umask: int
    log_cap_bytes: int
    containment: str  # "cgroup", "session" or "systemd" as the backend chose it
    cgroup: str | None  # the cgroup v2 directory made for this attempt
    checkpoint_dir: str | None
    checkpoint_command: str | None
    checkpoint_since: float | None  # unix seconds: older checkpoints are not ours (R2)
    checkpoint_exclude: list[str]  # passed over (R4)
    resume_fallback: str | None  # `--resume PATH`; used when no own checkpoint is complete
    resume_latest: bool  # `--resume latest`: any complete checkpoint there
    resume_arg: str | None
    first_attempt: bool
    notes: list[str]  # said once at the top of the log (P3, R2)
    mem_mib: int | None
    cpus: int | None
    protocol: int = PROTOCOL


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Who may run the attempt. Made with `create_record`, so that only one ever can. `shim` is None where the
    daemon made it, to be certain that a shim that is slow to start will not run what was given up."""

    shim: ProcessIdentity | None
    protocol: int = PROTOCOL


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive:
    shim: ProcessIdentity
    job: ProcessIdentity
    started_at: float
    containment: str  # what holds the job: "cgroup", "session", "systemd"
    resumed_from: str | None
    adopted: bool = False  # written by an adopter: the first shim died
    protocol: int = PROTOCOL


@dataclass(frozen=True, slots=True, kw_only=True)
class StopOrder:
    """Z2: `signal` to every process of the job, `grace_s` seconds, then kill of the containment."""

    signal: str
    grace_s: int
    sentence: str  # for the log
    asked_at: float
    protocol: int = PROTOCOL


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What the monitor has carried out: bytes of say.jsonl, and the newest stop order by its `asked_at`."""

    say_bytes: int = 0
    stop_asked_at: float | None = None
    protocol: int = PROTOCOL


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    checkpoint: str | None
    step: int | None
    completed_at: float | None
    skipped: list[str] = field(default_factory=list)  # "PATH: why", newest first, a few
    protocol: int = PROTOCOL


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How the attempt ended. Exactly one of exit_status, signal and lost speaks; `failed_start` is set where
    the job's first instruction was never reached (bad cwd, no such command) and says why in one sentence;
    `lasting` then says that another try would only meet it again (R5)."""

    exit_status: int | None
    signal: int | None
    lost: bool  # the shim died, and nobody could learn the status
    failed_start: str | None
    stopped: bool  # a stop order was being carried out when it ended
    killed: bool  # the grace ran out and it was killed
    leftover_pids: list[int]  # processes that survive SIGKILL (Z3)
    ended_at: float
    resumed_from: str | None = None
    leftover_start_ticks: list[int] = field(default_factory=list)  # one for each of leftover_pids
    lasting: bool = False
    oom_kills: int | None = None  # its processes that the kernel killed for want of host memory; None: not counted
    protocol: int = PROTOCOL


AnyRecord = Spec | Claim | Alive | StopOrder | Heard | Progress | Exit
Record = TypeVar("Record", Spec, Claim, Alive, StopOrder, Heard, Progress, Exit)


class UnreadableRecord(Exception):
    """A record is there but is not what this release writes: {0}."""


def reserve(path: Path) -> None:
    """Room on the disk for a record that must be written even when the disk is full; one write uses it up."""
    descriptor = os.open(_reserved(path), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, RESERVED_BYTES)
    finally:
        os.close(descriptor)


def write_record(path: Path, record: AnyRecord) -> None:
    """Atomic and durable: temporary name, fsync, rename, fsync of the directory. Takes the reserve if there is one."""
    reserved = _reserved(path)
    if reserved.exists():
        _write(reserved, record)
        reserved.replace(path)
    else:
        _write_temporary(path, record).replace(path)
    _sync_directory(path.parent)


def create_record(path: Path, record: AnyRecord) -> bool:
    """Like `write_record`, but never over another one: False where there is one already."""
    temporary = _write_temporary(path, record)
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    _sync_directory(path.parent)
    return True


def _reserved(path: Path) -> Path:
    return path.with_name(path.name + ".reserved")


def _write_temporary(path: Path, record: AnyRecord) -> Path:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        _write(temporary, record)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _write(path: Path, record: AnyRecord) -> None:
    """In place, so that blocks that are there are used; then to its length."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
        json.dump(asdict(record), file)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read_record(path: Path, kind: type[Record]) -> Record | None:
    """The record, or None where there is none. Raises UnreadableRecord: a caller must treat that as unknown,
    never as absent. Fields that a newer release added are ignored, missing ones are an error."""
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableRecord(f"{path}: {error}") from error
    try:
        known = {f.name for f in fields(kind)}
        values: dict[str, Any] = {k: v for k, v in json.loads(text).items() if k in known}
        for name in ("shim", "job"):
            if kind is Alive or (kind is Claim and values.get(name)):
                values[name] = ProcessIdentity(**values[name])
        return kind(**values)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnreadableRecord(f"{path}: {error}") from error
