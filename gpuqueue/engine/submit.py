"""Use case: submit a job. Refuses what could never run (Q5), makes one job of a retried request (J5)."""

import os
import shlex
import signal
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from pathlib import Path

from gpuqueue.core.admit import refusal
from gpuqueue.core.model import Ask, Job
from gpuqueue.core.reasons import sentence
from gpuqueue.engine import claims
from gpuqueue.engine.callers import Caller, named_user
from gpuqueue.engine.engine import Engine
from gpuqueue.engine.launch import absolute
from gpuqueue.engine.observe import account, unix_now
from gpuqueue.wire.errors import ErrorCode, GpuqueueError
from gpuqueue.wire.jobs import SubmitRequest
from gpuqueue.wire.states import JobState
from gpuqueue.wire.units import MAX_VRAM_MIB, format_mib, format_seconds

MAX_NAME = 200
MAX_COMMAND = 1000
MAX_GPUS = 64


def submit(engine: Engine, caller: Caller, request: SubmitRequest) -> tuple[Job, bool, list[str]]:
    """(the job, whether it is new, what the submitter should know). Raises GpuqueueError: INVALID for a request
    that is wrong in itself, REFUSED for one that could never run here, with the number in the way."""
    owner = _owner(caller, request)
    _require_own_login(engine, owner)
    account_name = account_of(engine, owner, request.account)
    notes: list[str] = []
    _check(request)
    ask = _ask(engine, request, notes)
    if ask.cards:
        engine.require_cards()
    resolved, _ = account(engine, account_name, engine.snapshot.cards)
    ask, advice = claims.with_claim(engine, request, ask, resolved)
    notes += advice
    if request.mem_mib and not engine.backend.limits_memory:
        notes.append(f"--mem {format_mib(request.mem_mib)} is not enforced: this node has no memory controller")
    refused = refusal(ask, resolved, engine.snapshot.cards, engine.settings.policy)
    if refused is not None:
        why, hint = sentence(refused), "see `gq gpus` and `gq quota`"
        if request.vram_auto:
            why, hint = f"{why} ({'; '.join(advice)})", "--vram 20G, or what `gq probe` says, where you know better"
        raise GpuqueueError(ErrorCode.REFUSED, why, hint, dict(refused.fields))
    now = engine.clock.second
    job = Job(
        id=0,
        user=owner.user,
        uid=owner.uid,
        account=account_name,
        ask=ask,
        state=JobState.QUEUED,
        state_since=now,
        queued_at=now,
        submitted_unix=unix_now(),
        claim_mib=ask.claim_mib,
        name=request.name or _default_name(request),
        command=_command(request),
    )
    with engine.store.transaction():
        stored, new = engine.store.add_job(job, request)
        if new:
            acting = f" (asked by {caller.user})" if caller.uid != owner.uid else ""
            text = f"job {stored.id} submitted for {account_name}{acting}"
            engine.event("submitted", caller.user, "; ".join([text, *advice]), stored.id)
    return stored, new, [*notes, *_shared_checkpoints(engine, stored)]


def _shared_checkpoints(engine: Engine, job: Job) -> list[str]:
    """R2, said at once to whoever names a directory that another open job saves into."""
    directory = job.ask.checkpoint_dir
    others = [other for other in engine.store.open_jobs() if directory and other.ask.checkpoint_dir == directory]
    mine = [other for other in others if other.uid == job.uid and other.id != job.id]
    theirs = [other for other in others if other.uid != job.uid]
    notes = []
    if mine:
        savers = _savers([str(other.id) for other in mine])
        notes.append(f"{savers} into {directory} too: only one of them runs at a time; give each its own directory")
    if theirs:
        savers = _savers([f"{other.id} of {other.user}" for other in theirs])
        notes.append(f"{savers} into {directory} too: each may resume from the other's; take one of your own")
    return notes


def _savers(jobs: Sequence[str]) -> str:
    return f"job {jobs[0]} saves" if len(jobs) == 1 else f"jobs {', '.join(jobs)} save"


def account_of(engine: Engine, owner: Caller, named: str | None) -> str:
    """A3: the account is the user, except where people share one login."""
    shared = owner.user in engine.settings.shared_logins or engine.daemon_uid != 0
    if named is None:
        return owner.user
    if not named or len(named) > MAX_NAME or not named.isprintable() or any(c in named for c in "/\\ ,;"):
        raise GpuqueueError(ErrorCode.INVALID, f"account {named!r} is not a name", "use letters, digits, '.', '_', '-'")
    if not shared and named != owner.user:
        raise GpuqueueError(
            ErrorCode.NOT_PERMITTED,
            f"account {named!r} refused: your account is your login, {owner.user}",
            "accounts can be named only under a shared login (shared_logins in the daemon's configuration)",
        )
    return named


def _owner(caller: Caller, request: SubmitRequest) -> Caller:
    if request.as_user is None or request.as_user == caller.user:
        return caller
    if not caller.admin:
        raise GpuqueueError(
            ErrorCode.NOT_PERMITTED, f"only an admin may submit as {request.as_user!r}", "leave out --as"
        )
    return named_user(request.as_user)


def _require_own_login(engine: Engine, owner: Caller) -> None:
    """A3: without root a daemon can run jobs as itself alone; root may ask it all the same, through any file mode."""
    if engine.daemon_uid not in (0, owner.uid):
        raise GpuqueueError(
            ErrorCode.NOT_PERMITTED,
            f"this gpuqueued runs without root: only jobs of uid {engine.daemon_uid}, its own, none of {owner.user}",
            "submit as its user, or ask root's daemon: GQ_SOCKET says which one is asked",
        )


def _check(request: SubmitRequest) -> None:
    """What no type can say. One clear line each."""

    def refuse(message: str, hint: str) -> None:
        raise GpuqueueError(ErrorCode.INVALID, message, hint)

    if request.script is None and not request.command:
        refuse("nothing to run", "give a script, or a command after --")
    if not request.idempotency_key or len(request.idempotency_key) > MAX_NAME:
        refuse("idempotency_key must have 1 to 200 characters", "send a random one")
    if not Path(request.cwd).is_absolute():
        refuse(f"cwd {request.cwd!r} is not absolute", "send the absolute path")
    if not 0 <= request.vram_mib <= MAX_VRAM_MIB:
        refuse(f"vram {request.vram_mib} MiB is not a size a card could have", "write for example --vram 22G")
    if request.vram_auto and request.vram_mib:
        refuse("vram_auto and a vram_mib exclude each other", "write --vram auto, or --vram 22G")
    told = request.estimate
    for mib in (told.occupied_mib, told.torch_peak_mib, told.context_mib) if told is not None else ():
        if not 1 <= mib <= MAX_VRAM_MIB:
            refuse(f"an estimate of {mib} MiB is not a size a card could have", "leave it out")
    parts = told.parts if told is not None else None
    for mib in astuple(parts) if parts is not None else ():
        if not 0 <= mib <= MAX_VRAM_MIB:
            refuse(f"an estimate with a part of {mib} MiB is not a size a card could have", "leave it out")
    if not 0 <= request.umask <= 0o777:
        refuse(f"umask {request.umask} is not between 0 and 0o777", "send the shell's umask")
    if not 1 <= request.gpus <= MAX_GPUS:
        refuse(f"--gpus {request.gpus} is not between 1 and {MAX_GPUS}", "for a job without a card write --vram 0")
    for label, value, least in (
        ("time", request.time_s, 1),
        ("grace", request.grace_s, 0),
        ("mem", request.mem_mib, 1),
        ("cpus", request.cpus, 1),
    ):
        if value is not None and not least <= value < 2**31:
            refuse(f"--{label} {value} is out of range", f"at least {least}")
    for label, text in _texts(request):
        if "\0" in text:
            refuse(f"{label} holds a NUL byte, which no program can be given", "remove it")
        if not _encodes(text, "strict"):  # it is shown to others
            refuse(f"{label} is not valid Unicode text", "send it as UTF-8")
    for variable, content in request.env.items():
        if not variable or "=" in variable:
            refuse("an environment variable has no name, or one with '='", "unset it")
        if "\0" in variable + content or not _encodes(variable + content, "surrogateescape"):
            refuse(f"no program can be given the environment variable {variable!r} as it is", "unset it")
    for label, short in (("--name", request.name), ("--gpu-type", request.gpu_type), ("the model", request.model)):
        if len(short or "") > MAX_NAME:
            refuse(f"{label} is longer than {MAX_NAME} characters", "shorten it")
    if len(request.gpu_indexes) > MAX_GPUS or any(index not in range(MAX_GPUS) for index in request.gpu_indexes):
        refuse(f"--gpu takes up to {MAX_GPUS} indexes from 0 to {MAX_GPUS - 1}", "see `gq gpus`")
    _signal_number(request.signal)


def _texts(request: SubmitRequest) -> Iterator[tuple[str, str]]:
    """Every text of a request under the name that its submitter knows; the environment has rules of its own."""
    for number, word in enumerate(request.command, start=1):
        yield f"word {number} of the command", word
    for label, text in (
        ("idempotency_key", request.idempotency_key),
        ("cwd", request.cwd),
        ("the script", request.script),
        ("the script's name", request.script_name),
        ("--name", request.name),
        ("--gpu-type", request.gpu_type),
        ("the model", request.model),
        ("--checkpoint-dir", request.checkpoint_dir),
        ("--checkpoint-command", request.checkpoint_command),
        ("--resume", request.resume),
        ("--resume-arg", request.resume_arg),
    ):
        if text is not None:
            yield label, text


def _encodes(text: str, errors: str) -> bool:
    """Whether it can be written as UTF-8; with "surrogateescape" also where it stands for other bytes (PEP 383)."""
    try:
        text.encode("utf-8", errors)
    except UnicodeEncodeError:
        return False
    return True


def _signal_number(name: str) -> signal.Signals:
    try:
        return signal.Signals[name]
    except KeyError:
        raise GpuqueueError(
            ErrorCode.INVALID, f"--signal {name!r} is no signal", "write for example SIGTERM or SIGUSR1"
        ) from None


def _ask(engine: Engine, request: SubmitRequest, notes: list[str]) -> Ask:
    limits = engine.settings.policy.limits
    limit_s = limits.default_s if request.time_s is None else request.time_s
    if limit_s > limits.max_s:
        raise GpuqueueError(
            ErrorCode.REFUSED,
            f"--time {format_seconds(limit_s)} is over the most this node allows, {format_seconds(limits.max_s)}",
            f"ask for --time {format_seconds(limits.max_s)} or less, and write checkpoints",
        )
    grace_s = limits.default_grace_s if request.grace_s is None else request.grace_s
    if grace_s > limits.max_grace_s:
        notes.append(f"grace is {format_seconds(limits.max_grace_s)}, the most this node allows")
        grace_s = limits.max_grace_s
    return Ask(
        job_class=request.job_class,
        claim_mib=request.vram_mib,
        cards=request.gpus if request.vram_mib or request.vram_auto else 0,
        gpu_type=request.gpu_type,
        gpu_indexes=tuple(sorted(set(request.gpu_indexes))),
        exclusive=request.exclusive,
        interactive=request.interactive,
        borrow=request.borrow,
        grow=request.grow,
        restart=request.restart,
        limit_s=limit_s,
        grace_s=grace_s,
        stop_signal=_signal_number(request.signal).name,
        checkpoint_dir=absolute(request.checkpoint_dir, request.cwd),
    )


def _command(request: SubmitRequest) -> str:
    words = [request.script_name or "script", *request.command] if request.script is not None else request.command
    return shlex.join(words)[:MAX_COMMAND]


def _default_name(request: SubmitRequest) -> str:
    first = request.script_name or (request.command[0] if request.command else "job")
    return (os.path.basename(first) or "job")[:MAX_NAME]  # noqa: PTH119 - a name, not a path of this machine
