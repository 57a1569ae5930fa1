"""A connection whose client does not ask is let go of; one that asks or is answered is not."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from gpuqueue.api.connections import Connection

WITHIN_S = 0.4
SLOW_ANSWER_S = 3 * WITHIN_S
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


class Impatient(Connection):
    ask_within_s = WITHIN_S


async def slow_app(scope: dict[str, Any], _: Any, send: Any) -> None:
    await asyncio.sleep(SLOW_ANSWER_S)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"done"})


@pytest.fixture
def path(open_path: Path) -> Iterator[Path]:
    """Where a server with that little patience listens."""
    path = open_path / "s"
    config = uvicorn.Config(slow_app, uds=str(path), http=Impatient, ws="none", lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    deadline = time.monotonic() + 30
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    yield path
    server.should_exit = True
    thread.join()


def connected(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(30)
    connection.connect(str(path))
    return connection


def read_all(connection: socket.socket) -> bytes:
    answer = b""
    while piece := connection.recv(65536):
        answer += piece
    return answer


@pytest.mark.parametrize("said", [b"", REQUEST[:-2], b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf"])
def test_who_does_not_ask_to_the_end_is_let_go_of(path: Path, said: bytes) -> None:
    with closing(connected(path)) as connection:
        connection.sendall(said)
        before = time.monotonic()
        with suppress(ConnectionResetError):  # it did not read all that was sent
            assert read_all(connection) == b""
        assert time.monotonic() - before < SLOW_ANSWER_S * 5


def test_who_drips_his_request_is_let_go_of(path: Path) -> None:
    with closing(connected(path)) as connection:
        connection.settimeout(WITHIN_S / 4)
        deadline, open_still = time.monotonic() + 30, True
        while open_still and time.monotonic() < deadline:
            try:
                connection.sendall(b"X")
                open_still = connection.recv(1) != b""
            except TimeoutError:
                continue
            except (BrokenPipeError, ConnectionResetError):
                open_still = False
        assert not open_still


def test_who_is_being_answered_stays(path: Path) -> None:
    with closing(connected(path)) as connection:
        connection.sendall(REQUEST)
        assert b"done" in read_all(connection)


@pytest.mark.parametrize("method", ["POST", "HEAD"])
def test_a_body_that_is_no_http_gets_400_whatever_the_method(
    path: Path, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(connected(path)) as connection:
        connection.sendall(f"{method} / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n".encode())
        head, _, body = read_all(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert bool(body) is (method == "POST")  # the answer to HEAD has none
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
