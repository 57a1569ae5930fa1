"""Who is at the other end of the socket: the kernel's word, taken when the connection is made (rule A1)."""

import socket
import struct

from fastapi import Request

from gpuqueue.engine.callers import Caller, Peer, identify
from gpuqueue.engine.engine import Engine

SO_PEERGROUPS = 59  # Linux 4.13; not in the socket module
_MAX_GROUPS = 65536


def peer_of(connection: socket.socket) -> Peer:
    """Raises OSError where the socket is not a Unix socket: nobody is served whom the kernel does not name."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, gid = struct.unpack("3i", raw)
    return Peer(uid=uid, gid=gid, pid=pid, groups=_peer_groups(connection))


def _peer_groups(connection: socket.socket) -> tuple[int, ...] | None:
    size = struct.calcsize("I")
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, 1024 * size)
    except OSError:  # more groups than fit, or a kernel without it: the group database answers instead
        return None
    return struct.unpack(f"{len(raw) // size}I", raw)


def engine_of(request: Request) -> Engine:
    engine: Engine = request.app.state.engine
    return engine


def caller_of(request: Request) -> Caller:
    """FastAPI dependency: the caller. Nothing in the request itself can name one."""
    engine = engine_of(request)
    return identify(request.state.peer, engine.settings.admin_group, engine.daemon_uid)
