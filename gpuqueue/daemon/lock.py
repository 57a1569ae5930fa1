"""One daemon per state directory, and one per node where the cards are real."""

import fcntl
import os
from pathlib import Path

from gpuqueue.wire.errors import ErrorCode, GpuqueueError

NODE_LOCKS = (Path("/run/lock"), Path("/tmp"))


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
    """The lock of a daemon with real cards, at the configured path, else where all daemons of the node look. Its file
    belongs to whoever came first; in a sticky /tmp another user's daemon cannot open it, which is the same answer."""
    directory = next((path for path in NODE_LOCKS if os.access(path, os.W_OK)), NODE_LOCKS[-1])
    path = configured or directory / "gpuqueued.lock"
    try:
        return hold(path, "this node's cards")
    except PermissionError as error:
        raise GpuqueueError(
            ErrorCode.UNAVAILABLE, f"another user's gpuqueued holds {path}", "one daemon serves all users of a node"
        ) from error
    except OSError as error:
        raise GpuqueueError(
            ErrorCode.UNAVAILABLE, f"cannot lock {path}: {error.strerror}", "see node_lock in the configuration"
        ) from error
