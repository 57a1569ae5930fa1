"""Becoming the job's owner, and short-lived helpers that do one thing as the owner and answer.

Root opens nothing that a user can write. Whatever lies with the user (the log, the checkpoints, the working
directory, a command) is touched by a child that has become the user first.
"""

import errno
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress

from gpuqueue.wire.rundir import Spec

# What is not there, not allowed or no program stays so; memory, space and file servers may come back.
_LASTING = frozenset(
    {
        errno.E2BIG,
        errno.EACCES,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOEXEC,
        errno.ENOTDIR,
        errno.EPERM,
    }
)


class CannotStart(Exception):
    """The job's first instruction cannot be reached; the message is one sentence for its owner. `lasting`: another
    try would only meet it again (R5)."""

    def __init__(self, sentence: str, exit_status: int = 126, *, lasting: bool = False) -> None:
        super().__init__(sentence)
        self.exit_status = exit_status
        self.lasting = lasting


def is_lasting(error: OSError) -> bool:
    """Whether the system would say the same to another try."""
    return error.errno in _LASTING


def become(spec: Spec) -> None:
    """Drops to the job's user for good, and checks each step (J1). Without root: only to oneself."""
    if os.geteuid() == 0:
        os.setgroups(spec.groups)
        os.setresgid(spec.gid, spec.gid, spec.gid)
        os.setresuid(spec.uid, spec.uid, spec.uid)
        if set(os.getgroups()) != set(spec.groups):
            raise CannotStart(f"the kernel did not take the groups of {spec.user}", lasting=True)
    if os.getresuid() != (spec.uid,) * 3 or os.getresgid() != (spec.gid,) * 3:
        raise CannotStart(f"cannot run as {spec.user} (uid {spec.uid}, gid {spec.gid}) without root", lasting=True)


def reset_signals() -> None:
    """A shim ignores most signals; what it runs must not inherit that."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        # The C library keeps a few real-time signals for itself.
        with suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


class Helper:
    """A child that runs `act(connection)` as the owner, within `limit_s` seconds. Contract 9: it may hang for
    ever in a dead file system; then it is killed, left to its fate, and has no answer."""

    def __init__(self, spec: Spec, act: Callable[[socket.socket], None], limit_s: float) -> None:
        ours, theirs = socket.socketpair()
        self.deadline = time.monotonic() + limit_s
        self.connection = ours
        self._answer = b""
        self.pid = os.fork()
        if self.pid == 0:
            _serve(spec, act, ours, theirs)
        theirs.close()
        ours.setblocking(False)

    @property
    def closed(self) -> bool:
        return self.connection.fileno() < 0

    def poll(self) -> bytes | None:
        """The whole answer once the child has given it, b"" where there will be none, None while it works."""
        try:
            while chunk := self.connection.recv(65536):
                self._answer += chunk
        except BlockingIOError:
            if time.monotonic() < self.deadline:
                return None
            self._answer = b""
        except OSError:
            self._answer = b""
        self.close()
        return self._answer

    def close(self) -> None:
        self.connection.close()
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


def _serve(spec: Spec, act: Callable[[socket.socket], None], ours: socket.socket, theirs: socket.socket) -> None:
    status = 1
    try:
        ours.close()
        # Its own group, so that what it starts dies with it; the shim's session, so that it is no part of the job.
        os.setpgid(0, 0)
        reset_signals()
        become(spec)
        act(theirs)
        status = 0
    except (OSError, CannotStart, ValueError):
        status = 1  # no answer is an answer: the caller goes on without
    finally:
        os._exit(status)
