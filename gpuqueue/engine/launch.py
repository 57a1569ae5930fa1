"""From a job and the cards it was given to the Spec that a shim runs (rules J1, J2, P2, P3, R2, R4)."""

import os
import pwd
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuqueue.core.model import Attempt, Job
from gpuqueue.core.restart import passed_over
from gpuqueue.core.snapshot import Card
from gpuqueue.engine.callers import database_groups, nameless
from gpuqueue.engine.cap import cap
from gpuqueue.wire.jobs import SubmitRequest
from gpuqueue.wire.rundir import MARKER_ENV, Spec

# All that some PyTorch reads; the first is read by every one that knows expandable segments.
ALLOCATOR_OPTIONS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
PINNING = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES")


class AccountGone(Exception):
    """Nobody is left whom the job could run as; the message is one sentence."""


def build_spec(
    job: Job,
    attempt: Attempt,
    request: SubmitRequest,
    cards: Sequence[Card],
    *,
    pin: str,
    log_cap_bytes: int,
    card_environment: Mapping[str, str],
    card_totals_mib: Sequence[int],
    report: Path,
) -> Spec:
    """Everything the shim needs. `cards` are the attempt's, in the order that the job sees them,
    `report` is where a capped job writes what its framework held. Raises AccountGone."""
    environment, notes = _environment(job, attempt, request, cards, pin)
    environment.update(card_environment)
    told, said = cap(request, attempt.claim_mib, card_totals_mib, report)
    environment.update(told)
    uid, gid, groups = _identity(job)
    first = attempt.number == 1
    return Spec(
        job_id=job.id,
        attempt=attempt.number,
        marker=attempt.marker,
        user=job.user,
        uid=uid,
        gid=gid,
        groups=list(groups),
        argv=list(request.command),
        script=request.script,
        script_name=request.script_name,
        cwd=request.cwd,
        env=environment,
        umask=request.umask,
        log_cap_bytes=log_cap_bytes,
        containment="",  # the backend knows what this machine can do
        cgroup=None,
        checkpoint_dir=absolute(request.checkpoint_dir, request.cwd),
        checkpoint_command=request.checkpoint_command,
        checkpoint_since=float(job.started_unix if job.started_unix is not None else attempt.started_unix),
        checkpoint_exclude=list(passed_over(job)),
        resume_fallback=_resume_path(request),
        resume_latest=request.resume == "latest",
        resume_arg=request.resume_arg,
        first_attempt=first,
        notes=[*notes, *said],
        mem_mib=request.mem_mib,
        cpus=request.cpus,
    )


def _environment(
    job: Job, attempt: Attempt, request: SubmitRequest, cards: Sequence[Card], pin: str
) -> tuple[dict[str, str], list[str]]:
    visible = ",".join(card.uuid if pin == "uuid" else str(card.index) for card in cards)
    ours = {
        "CUDA_VISIBLE_DEVICES": visible,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        # Container runtimes read this one; "void" is their word for no card at all.
        "NVIDIA_VISIBLE_DEVICES": ",".join(card.uuid for card in cards) or "void",
        "GQ_JOB_ID": str(job.id),
        "GQ_ATTEMPT": str(attempt.number),
        "GQ_RESTART_COUNT": str(job.restarts.total),
        "GQ_VRAM_MIB": str(attempt.claim_mib),
        "GQ_SUBMIT_DIR": request.cwd,
        MARKER_ENV: attempt.marker,
    }
    checkpoint_dir = absolute(request.checkpoint_dir, request.cwd)
    if checkpoint_dir is not None:
        ours["GQ_CHECKPOINT_DIR"] = checkpoint_dir
    overridden = [
        f"{name}={request.env[name]} of your shell is overridden with {ours[name]!r}"
        for name in PINNING
        if request.env.get(name) not in (None, ours[name])
    ]
    notes = overridden if attempt.number == 1 else []
    environment = dict(request.env)
    if job.restarts.used_expandable_segments:
        options = _with_expandable_segments(request.env)
        notes = [*notes, *(f"{name}={value}, since GPU memory was fragmented" for name, value in options.items())]
        environment.update(options)
    environment.update(ours)
    return environment, notes


def _with_expandable_segments(env: Mapping[str, str]) -> dict[str, str]:
    """R5: the allocator's options as the user set them, and this one."""
    names = [name for name in ALLOCATOR_OPTIONS if name == ALLOCATOR_OPTIONS[0] or name in env]
    others = {name: re.sub(r"expandable_segments:[^,]*", "", env.get(name, "")) for name in names}
    kept = {name: re.sub(r",(?=,|$)|^,", "", value) for name, value in others.items()}
    return {name: f"{value},expandable_segments:True".lstrip(",") for name, value in kept.items()}


def _identity(job: Job) -> tuple[int, int, tuple[int, ...]]:
    """Groups are read when the attempt starts, as a login would: leaving a group takes effect (J1). So does leaving
    altogether: a uid that has passed to somebody else runs nothing of his predecessor's."""
    if job.uid == os.geteuid():  # without root the daemon's own groups are the only ones there are
        return job.uid, os.getegid(), tuple(os.getgroups())
    try:
        entry = pwd.getpwnam(job.user)
    except KeyError:
        if job.user == nameless(job.uid):
            return job.uid, job.uid, ()
        raise AccountGone(f"its user {job.user} (uid {job.uid}) has no account here") from None
    if entry.pw_uid != job.uid:
        raise AccountGone(f"{job.user} was uid {job.uid} when it was submitted, and is uid {entry.pw_uid} now")
    return job.uid, entry.pw_gid, database_groups(entry.pw_name, entry.pw_gid)


def absolute(path: str | None, cwd: str) -> str | None:
    """The path as the job means it, from the directory in which it was submitted."""
    return None if path is None else os.path.normpath(Path(cwd) / path)


def _resume_path(request: SubmitRequest) -> str | None:
    if request.resume in (None, "latest"):
        return None
    return absolute(request.resume, request.cwd)
