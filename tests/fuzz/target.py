"""The daemon that is fuzzed, and connections to it as an account that can do no harm.

Under root every generated request comes from an account made for the run, so that a job that a request might
start runs as that account; else everything is the tester's own. What is submitted is made harmless besides.
"""

import json
import os
import socket
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from tests.e2e.node import Node

Connect = Callable[[], socket.socket]

ANSWER_S = 20
CANCEL_EVERY = 50  # requests: so that a queue of thousands is not what is measured


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Target:
    """`uid` is whose requests they are, except those about quotas, which only the daemon's own user may change.
    `statuses` counts the answers to generated requests; 0 is no answer, to what is none."""

    node: Node
    uid: int
    statuses: Counter[int] = field(default_factory=Counter)
    accepted: set[int] = field(default_factory=set)

    # -- connections -------------------------------------------------------------------------------------------

    def connect(self, *, as_admin: bool = False) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        uid = os.geteuid() if as_admin else self.uid
        with _acting_as(uid):  # the kernel takes the peer's uid when the connection is made
            connection.connect(str(self.node.socket))
        connection.settimeout(ANSWER_S)
        return connection

    def session(self, *, as_admin: bool = False) -> requests.Session:
        """For `http://gpuqueued/…`."""
        session = requests.Session()
        session.trust_env = False
        session.mount("http://", _UnixAdapter(partial(self.connect, as_admin=as_admin)))
        return session

    def exchange(self, message: bytes, whole: bool) -> bytes:
        """What the daemon answers to these bytes, up to the end of the connection. With a message that is not a
        `whole` request the connection is closed for writing, or the daemon would wait for the rest."""
        with closing(self.connect(as_admin=b" /v1/quotas" in message[:50])) as connection:
            with suppress(BrokenPipeError, ConnectionResetError):  # it answers and closes before it has read all
                connection.sendall(message)
                if not whole:
                    connection.shutdown(socket.SHUT_WR)
            answer = b""
            with suppress(ConnectionResetError):
                while piece := connection.recv(65536):
                    answer += piece
            return answer

    @property
    def sent(self) -> int:
        return self.statuses.total()

    # -- what must be true ---------------------------------------------------------------------------------------

    def count(self, status: int, body: bytes) -> None:
        """Notes one generated request and its answer."""
        self.statuses[status] += 1
        if status in (200, 201) and body.startswith(b'{"job":'):
            self.accepted.add(json.loads(body)["job"]["id"])
        if self.sent % CANCEL_EVERY == 0:
            self.session().post("http://gpuqueued/v1/jobs/cancel-all").raise_for_status()

    def check(self) -> None:
        """The same daemon answers, its log knows of no bug, the database is whole, and every job is there."""
        node = self.node
        assert node.process is not None
        assert node.process.poll() is None, node.tail()
        assert node.gq("status", "--json").returncode == 0
        log = node.log.read_text(errors="replace")
        assert "Traceback" not in log, log[log.index("Traceback") :][:4000]
        self.check_database()

    def check_database(self) -> None:
        path = self.node.state / "gpuqueue.db"
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert database.execute("PRAGMA foreign_key_check").fetchall() == []
            known = {job_id for (job_id,) in database.execute("SELECT id FROM job")}
        assert self.accepted <= known, f"lost: {sorted(self.accepted - known)}"

    def memory_mib(self) -> int:
        """What the daemon holds of the machine's memory now."""
        assert self.node.process is not None
        status = Path(f"/proc/{self.node.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) // 1024


@contextmanager
def _acting_as(uid: int) -> Iterator[None]:
    before = os.geteuid()
    if uid == before:
        yield
        return
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(before)


class _UnixConnection(HTTPConnection):
    def __init__(self, connect: Connect) -> None:
        super().__init__("gpuqueued")
        self.connect_socket = connect

    def connect(self) -> None:
        self.sock = self.connect_socket()


class _UnixPool(HTTPConnectionPool):
    def __init__(self, connect: Connect) -> None:
        super().__init__("gpuqueued")
        self.connect_socket = connect

    def _new_conn(self) -> _UnixConnection:
        return _UnixConnection(self.connect_socket)


class _UnixAdapter(HTTPAdapter):
    def __init__(self, connect: Connect) -> None:
        super().__init__()
        self.pool = _UnixPool(connect)

    def get_connection_with_tls_context(self, *_: Any, **__: Any) -> _UnixPool:
        return self.pool


def parsed(raw: bytes) -> Answer:
    """The first answer in what came over a connection."""
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    version, status, *_ = first.split(b" ")
    assert version == b"HTTP/1.1", raw[:200]
    headers = {}
    for line in lines:
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    return Answer(int(status), headers, body)
