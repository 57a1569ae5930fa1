"""The run directory: the memory between daemon and shim, one directory an attempt.

    spec.json      daemon   before the shim starts
    alive.json     shim     before the job's first instruction
    say.jsonl      daemon   sentences for the job's log, appended
    stop.json      daemon   the stop order; a newer one replaces it
    progress.json  shim     newest checkpoint, what was skipped
    exit.json      shim     how it ended; written once, last
    user/          the job's owner: output.log and the copy of the script

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

SPEC, ALIVE, SAY, STOP, PROGRESS, EXIT = (
    "spec.json",
    "alive.json",
    "say.jsonl",
    "stop.json",
    "progress.json",
    "exit.json",
)
USER_DIR, LOG, SCRIPT = "user", "output.log", "script"
MARKER_ENV = "GQ_ATTEMPT_MARKER"


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
class Progress:
    checkpoint: str | None
    step: int | None
    completed_at: float | None
    skipped: list[str] = field(default_factory=list)  # "PATH: why", newest first, a few
    protocol: int = PROTOCOL


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How the attempt ended. Exactly one of exit_status, signal and lost speaks; `failed_start` is set where
    the job's first instruction was never reached (bad cwd, no such command) and says why in one sentence."""

    exit_status: int | None
    signal: int | None
    lost: bool  # the shim died, and nobody could learn the status
    failed_start: str | None
    stopped: bool  # a stop order was being carried out when it ended
    killed: bool  # the grace ran out and it was killed
    leftover_pids: list[int]  # processes that survive SIGKILL (Z3)
    ended_at: float
    resumed_from: str | None = None
    protocol: int = PROTOCOL


Record = TypeVar("Record", Spec, Alive, StopOrder, Progress, Exit)


class UnreadableRecord(Exception):
    """A record is there but is not what this release writes: {0}."""


def write_record(path: Path, record: Spec | Alive | StopOrder | Progress | Exit) -> None:
    """Atomic and durable: temporary name, fsync, rename, fsync of the directory."""
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
        json.dump(asdict(record), file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
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
            if kind is Alive:
                values[name] = ProcessIdentity(**values[name])
        return kind(**values)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnreadableRecord(f"{path}: {error}") from error
