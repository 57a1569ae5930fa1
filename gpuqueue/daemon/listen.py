"""The Unix socket: its permissions are right before the first connection can be made."""

import contextlib
import os
import shutil
import socket
from pathlib import Path

from gpuqueue.wire.errors import ErrorCode, GpuqueueError

MAX_SOCKET_PATH = 107  # sun_path less its end


def listen(path: Path, *, mode: int, group: str | None) -> socket.socket:
    """A listening socket with that mode and group. The caller holds the state directory's lock, so a socket file
    that is there and answers belongs to another daemon: that is refused, and a dead one is replaced."""
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise GpuqueueError(
            ErrorCode.INVALID, f"socket path {path} is longer than {MAX_SOCKET_PATH} bytes", "choose a shorter one"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_dead(path)
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        before = os.umask(0o177)  # bind creates the file: nobody else may connect before chmod
        try:
            server.bind(str(path))
        finally:
            os.umask(before)
        if group is not None:
            shutil.chown(path, group=group)
        path.chmod(mode)
        server.listen(256)
        server.setblocking(False)
    except LookupError as error:
        raise GpuqueueError(ErrorCode.INVALID, f"socket_group {group!r} is no group here", "create it") from error
    except OSError as error:
        raise GpuqueueError(
            ErrorCode.UNAVAILABLE, f"cannot listen on {path}: {error.strerror}", "choose another one with --socket"
        ) from error
    return server


def _remove_dead(path: Path) -> None:
    if not path.exists() and not path.is_symlink():
        return
    if not path.is_socket():
        raise GpuqueueError(
            ErrorCode.INVALID, f"{path} is there and is not a socket", "choose another one with --socket"
        )
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
        probe.settimeout(2)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise GpuqueueError(
                ErrorCode.UNAVAILABLE, f"cannot tell whether {path} is in use: {error.strerror}", "remove it by hand"
            ) from error
    raise GpuqueueError(
        ErrorCode.UNAVAILABLE, f"another daemon answers on {path}", "stop it first, or choose another --socket"
    )
