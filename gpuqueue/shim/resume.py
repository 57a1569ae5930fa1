"""From which checkpoint an attempt resumes, and which is the newest while it runs (R2, R4). Runs as the owner."""

import json
import os
import shlex
import socket
import subprocess
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuqueue.checkpoints.newest import newest_complete
from gpuqueue.shim.owner import Helper
from gpuqueue.wire.rundir import MARKER_ENV, Progress, Spec

LOOK_LIMIT_S = 20
COMMAND_LIMIT_S = 60
_SAID = 5  # of the skipped ones: enough to see why, not enough to fill a record
_PATH_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class Resume:
    """`checkpoint` is what GQ_RESUME_FROM says; `notes` are for the top of the log."""

    checkpoint: str | None = None
    notes: list[str] = field(default_factory=list)


def look(spec: Spec, env: dict[str, str]) -> Helper:
    """A helper that answers with the newest complete checkpoint of this job; read it with `as_progress`."""
    limit_s = COMMAND_LIMIT_S if spec.checkpoint_command else LOOK_LIMIT_S
    return Helper(spec, lambda connection: _send(connection, _own(spec, env)), limit_s)


def resolve(spec: Spec, env: dict[str, str]) -> Helper:
    """A helper that answers from where this attempt resumes; read it with `as_resume`."""
    limit_s = COMMAND_LIMIT_S if spec.checkpoint_command else LOOK_LIMIT_S
    return Helper(spec, lambda connection: _send(connection, _resume(spec, env)), limit_s)


def as_progress(answer: bytes) -> Progress | None:
    return Progress(**fields) if (fields := _fields(answer)) else None


def as_resume(answer: bytes, spec: Spec) -> Resume:
    if fields := _fields(answer):
        return Resume(**fields)
    fallback = spec.resume_fallback
    went_on = f"resuming from {fallback}" if fallback else "starting from the beginning"
    return Resume(fallback, [f"looking for checkpoints gave no answer; {went_on}"])


def must_look(spec: Spec) -> bool:
    """Whether resuming depends on what lies on the owner's disk."""
    return looks_for_checkpoints(spec) and (not spec.first_attempt or spec.resume_latest)


def without_looking(spec: Spec) -> Resume:
    return _resume(spec, {})


def _fields(answer: bytes) -> dict[str, Any] | None:
    """None where a helper was killed before its answer was whole."""
    try:
        found: dict[str, Any] = json.loads(answer)
    except ValueError:
        return None
    return found


def resume_words(spec: Spec, checkpoint: str | None) -> list[str]:
    """What `--resume-arg` adds to the command: split like a shell does, then {checkpoint} filled in."""
    if not spec.resume_arg or not checkpoint:
        return []
    return [word.replace("{checkpoint}", checkpoint) for word in shlex.split(spec.resume_arg)]


def looks_for_checkpoints(spec: Spec) -> bool:
    return bool(spec.checkpoint_dir or spec.checkpoint_command)


def _send(connection: socket.socket, record: Progress | Resume) -> None:
    connection.sendall(json.dumps(asdict(record)).encode())


def _resume(spec: Spec, env: dict[str, str]) -> Resume:
    notes = []
    if not spec.first_attempt and looks_for_checkpoints(spec):
        own = _own(spec, env)
        notes = [f"skipped {line}" for line in own.skipped]
        if own.checkpoint:
            return Resume(own.checkpoint, [*notes, f"resuming from {own.checkpoint}"])
        notes.append("no complete checkpoint of this job yet")
    chosen = spec.resume_fallback
    if chosen is None and spec.resume_latest and looks_for_checkpoints(spec):
        found = _own(replace(spec, checkpoint_since=None), env)
        notes += [line for one in found.skipped if (line := f"skipped {one}") not in notes]
        chosen = found.checkpoint
        if chosen is None:
            notes.append("--resume latest: there is no complete checkpoint")
    if chosen:
        notes.append(f"resuming from {chosen}")
    elif not spec.first_attempt:
        notes.append("starting from the beginning")
    return Resume(chosen, notes)


def _own(spec: Spec, env: dict[str, str]) -> Progress:
    if spec.checkpoint_command:
        return _ask(spec, spec.checkpoint_command, env)
    return _newest(spec, spec.checkpoint_dir or "", spec.checkpoint_since)


def _newest(spec: Spec, directory: str, since: float | None) -> Progress:
    found = newest_complete(directory, since, spec.checkpoint_exclude)
    skipped = [f"{one.path}: {one.reason}" for one in found.skipped[:_SAID]]
    if found.checkpoint is None:
        return _nothing(*skipped)
    return Progress(
        checkpoint=found.checkpoint.path,
        step=found.checkpoint.step,
        completed_at=found.checkpoint.completed_at,
        skipped=skipped,
    )


def _ask(spec: Spec, command: str, env: dict[str, str]) -> Progress:
    """The last line that `--checkpoint-command` prints; whether it is complete is the command's business."""
    # Without the marker: it is the monitor's helper, not one of the job's processes.
    env = {name: value for name, value in env.items() if name != MARKER_ENV}
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=spec.cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    lines = os.fsdecode(done.stdout[-_PATH_LIMIT:]).split("\n")
    path = next((line.strip() for line in reversed(lines) if line.strip()), "")
    if done.returncode != 0:
        return _nothing(f"--checkpoint-command: it ended with status {done.returncode}")
    if not path:
        return _nothing()
    path = os.path.normpath(Path(spec.cwd) / path)
    if path in spec.checkpoint_exclude:
        return _nothing(f"{path}: attempts from it failed")
    try:
        completed_at = Path(path).stat().st_mtime
    except OSError as error:
        return _nothing(f"{path}: {error.strerror}")
    if spec.checkpoint_since is not None and completed_at < spec.checkpoint_since:
        return _nothing(f"{path}: older than this job")
    return Progress(checkpoint=path, step=None, completed_at=completed_at)


def _nothing(*skipped: str) -> Progress:
    return Progress(checkpoint=None, step=None, completed_at=None, skipped=list(skipped))
