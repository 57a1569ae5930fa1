"""One daemon per state directory, and one per node where the cards are real."""

import fcntl
import os
import socket
from pathlib import Path

from gpuqueue.wire.errors import ErrorCode, GpuqueueError

NODE_NAME = "\0gpuqueued.node"


def hold(path: Path, what: str) -> int:
    """Holds an exclusive lock until the process ends; returns its descriptor. Raises UNAVAILABLE when taken."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise GpuqueueError(
            ErrorCode.UNAVAILABLE,
            f"another gpuqueued (pid {holder or 'unknown'}) already serves {what}",
            "stop it first: two daemons would both hand out the same VRAM",
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def hold_node(configured: Path | None) -> int:
    """The lock of a daemon with real cards: a file at the configured path, else an abstract socket, which no user can
    leave behind, nor hide from another's daemon as a file's permissions would."""
    if configured is None:
        return hold_name(NODE_NAME)
    try:
        return hold(configured, "this node's cards")
    except OSError as error:
        raise GpuqueueError(
            ErrorCode.UNAVAILABLE, f"cannot lock {configured}: {error.strerror}", "see node_lock in the configuration"
        ) from error


def hold_name(abstract: str) -> int:
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        name.bind(abstract)
    except OSError as error:
        name.close()
        raise GpuqueueError(
            ErrorCode.UNAVAILABLE,
            "another gpuqueued already serves this node's cards",
            "one daemon serves all users of a node; `ss -xap | grep gpuqueued` names it",
        ) from error
    return name.detach()
