"""Clients that take more than their share, or go away in the middle: the others are served all the same."""

import json
import resource
import socket
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from tests.e2e.node import Node

pytestmark = pytest.mark.e2e

CROWD = 1000
EVENTS = 8_000
MIB = 1024 * 1024


def connected(node: Node) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(str(node.socket))  # with a time limit it would not wait for its turn, but fail
    connection.settimeout(60)
    return connection


def ask(connection: socket.socket, target: str) -> None:
    connection.sendall(f"GET {target} HTTP/1.1\r\nHost: gpuqueued\r\nConnection: close\r\n\r\n".encode())


def read_all(connection: socket.socket) -> bytes:
    answer = b""
    while piece := connection.recv(65536):
        answer += piece
    return answer


def descriptors(node: Node) -> int:
    assert node.process is not None
    return len(list(Path(f"/proc/{node.process.pid}/fd").iterdir()))


def memory_mib(node: Node) -> int:
    assert node.process is not None
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) // 1024


def test_a_thousand_idle_connections_keep_nobody_out(node: Node) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * CROWD)), hard))
    assert node.process is not None
    _, daemons = resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE, (512, daemons))  # less than the crowd would need
    job = node.submit("--vram", "1G", "--", "sleep", "1h")
    with ExitStack() as stack:
        asked = stack.enter_context(closing(connected(node)))
        ask(asked, f"/v1/jobs/{job}/wait?timeout_s=60")
        for number in range(CROWD):
            connection = stack.enter_context(closing(connected(node)))
            if number % 2:
                connection.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: gpuqueued\r\nContent-Le")
            if number % 250 == 0:
                assert node.job(job)["state"] in ("starting", "running")
        assert node.job(job)["state"] == "running"
        node.gq("cancel", str(job))
        assert b'"state":"cancelled"' in read_all(asked)  # who is being answered was not the one to go
    assert "Traceback" not in node.log.read_text()


def test_who_goes_away_in_the_middle_leaves_nothing_behind(node: Node) -> None:
    job = node.submit("--vram", "1G", "--", "sleep", "1h")
    node.until_state(job, "running")
    before = descriptors(node)
    for target in (f"/v1/jobs/{job}/wait?timeout_s=60", f"/v1/jobs/{job}/log?wait_s=60", "/v1/events/stream"):
        for _ in range(30):
            with closing(connected(node)) as connection:
                ask(connection, target)
    node.until(lambda: descriptors(node) <= before, "their connections are closed", timeout=20)
    node.gq("cancel", str(job))
    node.until_state(job, "cancelled")
    assert "Traceback" not in node.log.read_text()


def test_a_follower_that_does_not_read_costs_nothing_and_misses_nothing(make_node: Callable[..., Node]) -> None:
    node = make_node(config='[daemon]\nsample = "1s"\n').start()
    node.stop()
    with closing(sqlite3.connect(node.state / "gpuqueue.db")) as database, database:
        rows = [(at, "note", "tester", f"event {at} {'.' * 500}") for at in range(1, EVENTS + 1)]
        database.executemany("INSERT INTO event (at_unix, kind, actor, text) VALUES (?, ?, ?, ?)", rows)
    node.start()
    first = memory_mib(node)
    with ExitStack() as stack:
        followers = [stack.enter_context(closing(connected(node))) for _ in range(20)]
        for follower in followers:
            ask(follower, "/v1/events/stream?after=0")
        node.gq("quota", "set", "ann", "--train", "1G")
        assert memory_mib(node) - first < 20 * EVENTS * 500 // MIB  # what they have not read is still on the disk only
        seen, rest = [], b""
        while len(seen) <= EVENTS:
            *lines, rest = (rest + followers[0].recv(MIB)).split(b"\n")
            seen += [json.loads(line[6:])["id"] for line in lines if line.startswith(b"data: ")]
        assert seen == list(range(1, len(seen) + 1))
        node.gq("quota", "unset", "ann")
        while b"unset" not in rest:
            rest += followers[0].recv(MIB)


def test_a_request_without_end_is_answered_before_it_is_read(node: Node) -> None:
    before = memory_mib(node)
    for head, piece, status in (
        (b"Content-Length: %d\r\n\r\n" % (9 * MIB), b"", b"413"),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"100000\r\n" + b" " * MIB + b"\r\n", b"413"),
        (b"", b"X-Large: " + b"a" * MIB, b"400"),
    ):
        with closing(connected(node)) as connection:
            start = b"POST /v1/jobs HTTP/1.1\r\nHost: gpuqueued\r\nContent-Type: application/json\r\n"
            connection.sendall(start + head)
            with suppress(OSError):  # it has heard enough
                for _ in range(64):
                    connection.sendall(piece)
            assert connection.recv(12) == b"HTTP/1.1 " + status
    assert memory_mib(node) - before < 40
    assert node.gq("status").returncode == 0
