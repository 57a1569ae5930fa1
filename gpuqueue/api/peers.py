"""Who is at the other end of the socket: the kernel's word, taken when the connection is made (rule A1)."""

import asyncio
import socket
import struct
from typing import Any, Protocol, cast

from fastapi import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

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


class _HasSocket(Protocol):
    def get_extra_info(self, name: str) -> Any: ...


class PeerProtocol(H11Protocol):
    """uvicorn's HTTP protocol, which also puts the peer into the state of every request on the connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connection = cast(_HasSocket, transport).get_extra_info("socket")
        self.app_state = {**self.app_state, "peer": peer_of(connection)}


def engine_of(request: Request) -> Engine:
    engine: Engine = request.app.state.engine
    return engine


def caller_of(request: Request) -> Caller:
    """FastAPI dependency: the caller. Nothing in the request itself can name one."""
    engine = engine_of(request)
    return identify(request.state.peer, engine.settings.admin_group, engine.daemon_uid)
