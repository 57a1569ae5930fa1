"""The job's own process, from the fork to its first instruction (J1, contract 2 and 4).

Child and shim speak over one socket pair. The child becomes the owner, opens the log, goes where the job runs,
says it is ready and waits. "go" lets it run the command; a closed socket lets it leave without having run anything.
"""

import array
import errno
import json
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from gpuqueue.shim.owner import CannotStart, become, is_lasting, reset_signals
from gpuqueue.wire.rundir import LOG, MARKER_ENV, SCRIPT, USER_DIR, Spec

_READY, _GO = b"ready", b"go"
_MESSAGE_LIMIT = 65536


@dataclass(slots=True)
class Child:
    """`connection` closes by itself once the command runs: end of file means started."""

    pid: int
    connection: socket.socket
    log: int | None = None

    def ready(self) -> bool:
        """True once it waits for the release. Raises CannotStart with its own words; BlockingIOError: not yet."""
        message, descriptors, _, _ = socket.recv_fds(self.connection, _MESSAGE_LIMIT, 1)
        if descriptors:
            self.log = descriptors[0]
        if message != _READY:
            _raise(message)
        return True

    def release(self) -> None:
        """Contract 2: only after alive.json is written."""
        with suppress(OSError):  # it died meanwhile; its exit tells
            self.connection.send(_GO)

    def started(self) -> bool:
        """True once the command runs. Raises like `ready`."""
        message = self.connection.recv(_MESSAGE_LIMIT)
        if message:
            _raise(message)
        return True


def fork_job(run_dir: Path, spec: Spec, environment: dict[str, str], more_arguments: list[str]) -> Child:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Opened before the drop: the owner need not be able to walk the directories above it.
    user_dir = os.open(run_dir / USER_DIR, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        ours.close()
        _live(run_dir, spec, environment, more_arguments, user_dir, theirs)
    theirs.close()
    os.close(user_dir)
    ours.setblocking(False)
    return Child(pid, ours)


def open_log(user_dir: int, flags: int) -> int:
    """The log by a directory of which nobody but root can make another; called as the owner."""
    return os.open(LOG, flags | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=user_dir)


def _live(
    run_dir: Path, spec: Spec, environment: dict[str, str], more: list[str], user_dir: int, shim: socket.socket
) -> NoReturn:
    try:
        command = _prepare(run_dir, spec, environment, user_dir, shim)
        if shim.recv(_MESSAGE_LIMIT) != _GO:
            os._exit(0)
        _run([*command, *more], environment)
    except CannotStart as error:
        _tell(shim, error)
    except OSError as error:
        _tell(shim, CannotStart(f"{error.filename or 'the job'}: {error.strerror}", lasting=is_lasting(error)))
    finally:
        os._exit(127)


def _prepare(run_dir: Path, spec: Spec, environment: dict[str, str], user_dir: int, shim: socket.socket) -> list[str]:
    os.setsid()
    _leave_privileges_of_the_shim()
    become(spec)
    os.umask(0o077)
    output = open_log(user_dir, os.O_WRONLY)
    log_of_the_monitor = open_log(user_dir, os.O_RDWR)
    command = spec.argv if spec.script is None else _script_command(run_dir, spec, environment, user_dir)
    if not command:
        raise CannotStart("there is no command to run", 127, lasting=True)
    os.umask(spec.umask)
    try:
        os.chdir(spec.cwd)
    except OSError as error:
        # Never lasting: what an automounter or Kerberos still owes says the same as what is gone.
        raise CannotStart(f"cannot change directory to {spec.cwd}: {error.strerror}") from error
    os.dup2(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    descriptors = array.array("i", [log_of_the_monitor])
    shim.sendmsg([_READY], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
    return command


def _leave_privileges_of_the_shim() -> None:
    """J6: the shim is hard to kill and its signals are ignored; the job is an ordinary process."""
    reset_signals()
    with suppress(OSError):  # raising one's own is always allowed where /proc is writable at all
        Path("/proc/self/oom_score_adj").write_text("0")
    if os.getpriority(os.PRIO_PROCESS, 0) < 0:
        os.setpriority(os.PRIO_PROCESS, 0, 0)


def _script_command(run_dir: Path, spec: Spec, environment: dict[str, str], user_dir: int) -> list[str]:
    """The script's copy, run as the kernel would: through its first line, else by its name, else by a shell."""
    text = (spec.script or "").encode("utf-8", "surrogateescape")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(SCRIPT, flags, 0o700, dir_fd=user_dir), "wb") as file:
        file.write(text)
    path = str(run_dir / USER_DIR / SCRIPT)
    if not os.access(path, os.R_OK):
        sentence = f"{spec.user} cannot reach the copy of the script, {path}: a directory above it is closed"
        raise CannotStart(sentence, lasting=True)
    is_python = (spec.script_name or "").endswith(".py")
    if is_python:
        # Python looks for modules beside the script; beside the copy there are none.
        beside = Path(spec.cwd) / Path(spec.script_name or "").parent
        paths = [str(beside), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    if text.startswith(b"#!"):
        first_line = os.fsdecode(text[2:].split(b"\n", 1)[0]).strip(" \t")
        interpreter = first_line.split(maxsplit=1) if not first_line.endswith("\r") else [first_line]
        return [*interpreter, path, *spec.argv]
    candidates = ("python", "python3") if is_python else ("bash", "sh")
    return [_first_of(candidates, environment), path, *spec.argv]


def _first_of(candidates: tuple[str, ...], environment: dict[str, str]) -> str:
    for name in candidates:
        if path := _on_path(name, environment):
            return path
    path = environment.get("PATH", "unset")
    raise CannotStart(f"no {' or '.join(candidates)} in the job's PATH ({path})", 127, lasting=True)


def _on_path(name: str, environment: dict[str, str]) -> str | None:
    """As a shell looks: directories of the PATH that cannot be entered are passed over."""
    paths = (Path(directory) / name for directory in os.get_exec_path(environment))
    return next((str(path) for path in paths if os.access(path, os.X_OK) and path.is_file()), None)


def _run(command: list[str], environment: dict[str, str]) -> NoReturn:
    name = command[0]
    path = name if "/" in name else _on_path(name, environment)
    if path is None:
        raise CannotStart(f"{name}: no such command", 127, lasting=True)
    try:
        os.execve(path, command, environment)
    except FileNotFoundError as error:
        if "\r" in name:
            sentence = f"no such interpreter: {name!r}; the script has Windows line ends"
            raise CannotStart(sentence, 127, lasting=True) from error
        missing = "its interpreter does not exist" if Path(name).exists() else "no such command"
        raise CannotStart(f"{name}: {missing}", 127, lasting=True) from error
    except ValueError as error:
        raise CannotStart(f"cannot run {name!r}: {error}", lasting=True) from error
    except OSError as error:
        hint = "; it needs a first line such as #!/bin/sh" if error.errno == errno.ENOEXEC else ""
        raise CannotStart(f"cannot run {name}: {error.strerror}{hint}", lasting=is_lasting(error)) from error


def _tell(shim: socket.socket, error: CannotStart) -> None:
    words = {"sentence": str(error), "exit_status": error.exit_status, "lasting": error.lasting}
    with suppress(OSError):  # the shim died first
        shim.send(json.dumps(words).encode())


def _raise(message: bytes) -> NoReturn:
    if not message:
        raise CannotStart("its process was killed before it could start")
    words = json.loads(message)
    raise CannotStart(words["sentence"], words["exit_status"], lasting=words["lasting"])


def environment_of(spec: Spec, resume_from: str | None) -> dict[str, str]:
    """The submitter's environment with what only the shim knows (J2). GQ_RESUME_FROM is empty, never unset."""
    environment = dict(spec.env)
    environment.setdefault("PYTHONUNBUFFERED", "1")
    environment["GQ_JOB_ID"] = str(spec.job_id)
    environment["GQ_ATTEMPT"] = str(spec.attempt)
    environment["GQ_RESUME_FROM"] = resume_from or ""
    environment[MARKER_ENV] = spec.marker
    environment.pop("GQ_CHECKPOINT_DIR", None)
    if spec.checkpoint_dir:
        environment["GQ_CHECKPOINT_DIR"] = spec.checkpoint_dir
    return environment
