"""How many connections there may be and how long one may take to ask: no client can keep the others out.

A connection that waits for its client's request costs a file descriptor, of which a process has a limited number.
"""

import asyncio
import resource
from collections import Counter
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from gpuqueue.api.peers import peer_of
from gpuqueue.api.problems import SEE_SCHEMA, UNREADABLE, problem
from gpuqueue.engine.callers import Peer
from gpuqueue.wire.errors import ErrorCode, GpuqueueError

MOST = 4096
KEPT_FREE = 256  # descriptors for the store, logs, each running job's pidfd, and what is accepted in one go
ACCEPTED_IN_ONE_GO = 32  # a few times as many come before the first of them can make room; the others wait to connect


def most_connections() -> int:
    """As many as the process's limit on open files leaves room for."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else min(MOST, max(soft - KEPT_FREE, KEPT_FREE))


class Connection(H11Protocol):
    """uvicorn's HTTP protocol, which puts the peer into the state of every request on the connection, and lets
    go of a client that does not ask, or of the greediest user's oldest connection where there are too many."""

    peer: Peer
    since: float  # the loop's time when it last sent something
    timer: asyncio.TimerHandle
    ask_within_s = 30.0  # or at most twice as long: on a Unix socket a whole request takes no time

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.since = self.loop.time()
        self.timer = self.loop.call_later(self.ask_within_s, self.look, None)
        self.peer = peer_of(transport.get_extra_info("socket"))
        self.app_state = {**self.app_state, "peer": self.peer}
        if len(self.connections) > most_connections():
            self.make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self.timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.since = self.loop.time()
        super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """What came is not HTTP, perhaps in the middle of a request that is being answered: that answer is dropped."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # a part of it is out already
            self.transport.abort()
            return
        answer = problem(GpuqueueError(ErrorCode.INVALID, msg, SEE_SCHEMA), UNREADABLE)
        head = h11.Response(status_code=UNREADABLE, headers=[*answer.raw_headers, (b"connection", b"close")])
        to_head = self.conn.our_state is h11.SEND_RESPONSE and self.scope["method"] == "HEAD"  # has no body, ever
        for event in (head, h11.Data(data=b"" if to_head else bytes(answer.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    @property
    def being_answered(self) -> bool:
        """The daemon's turn, not the client's."""
        return self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body

    def look(self, answered_before: Any) -> None:
        """Closes a connection that has waited for the same request all the time since the last look."""
        if not self.being_answered and self.cycle is answered_before:
            self.transport.abort()
            return
        self.timer = self.loop.call_later(self.ask_within_s, self.look, self.cycle)

    def make_room(self) -> None:
        """Closes a connection of the user who has most of them: the one that has been idle longest, and only where
        all of his are being answered the one that asked longest ago."""
        others = [one for one in self.connections if isinstance(one, Connection) and not one.transport.is_closing()]
        greediest, _ = Counter(one.peer.uid for one in others).most_common(1)[0]
        victim = min(
            (one for one in others if one.peer.uid == greediest), key=lambda one: (one.being_answered, one.since)
        )
        victim.transport.abort()
