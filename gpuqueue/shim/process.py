"""The shim as a process: hard to kill, deaf to most signals, one to a run directory; and how it wakes the daemon."""

import fcntl
import os
import select
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gpuqueue.shim import linux
from gpuqueue.wire.rundir import LOCK, WAKE_SOCKET

_OOM_SCORE_ADJ = -900
_HANDLED = {signal.SIGUSR1, signal.SIGCHLD}
_LEFT_ALONE = {signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}


def settle() -> int:
    """Makes this process a monitor. Returns the descriptor that becomes readable when a signal arrives."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    for number in signal.valid_signals() - _LEFT_ALONE - _HANDLED:
        with suppress(OSError, ValueError):  # the C library keeps some real-time signals for itself
            signal.signal(number, signal.SIG_IGN)
    for number in _HANDLED:
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    linux.become_subreaper()
    with suppress(OSError):  # J6, where it is allowed
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE_ADJ))
    os.umask(0o077)
    os.chdir("/")
    return reading


def lock(run_dir: Path) -> bool:
    """True if this process is now the only monitor there, until it dies: the kernel gives the lock back.
    A record lock, since a helper that hangs must not hold it on."""
    descriptor = os.open(run_dir / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return False
    return True


def wait_readable(descriptors: Sequence[int], timeout_s: float) -> bool:
    return bool(select.select(descriptors, [], [], timeout_s)[0])


def wake_daemon(run_dir: Path) -> None:
    """A hint, no more: a daemon that is not there finds the records when it comes."""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        # By way of /proc, since the address of a socket holds 107 bytes and a state directory may be deep.
        directory = os.open(run_dir.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sender.setblocking(False)
            sender.sendto(run_dir.name.encode(), f"/proc/self/fd/{directory}/{WAKE_SOCKET}")
        finally:
            os.close(directory)
