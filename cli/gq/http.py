"""HTTP/1.1 over a Unix socket, one connection a request: all that `gq` needs of it.

The standard library's client costs more start-up time than all of `gq status`, so this is a small one. It
reads answers with a length, chunked ones, and ones that end with the connection.
"""

import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO

MAX_LINE = 64 * 1024
PIECE = 64 * 1024


class Broken(Exception):
    """The connection ended, or said something that is not HTTP, before the answer was complete."""


class Answer:
    """Status and headers (names in lower case); the body is read by `read` or `pieces`, once."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._stream: BinaryIO = connection.makefile("rb")
        version, _, rest = self._line().partition(b" ")
        if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
            raise Broken("what answers there does not speak HTTP")
        self.status = int(rest[:3])
        self.headers: dict[str, str] = {}
        while line := self._line():
            name, _, value = line.decode("latin-1").partition(":")
            self.headers[name.strip().lower()] = value.strip()

    def __enter__(self) -> "Answer":
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._connection.close()

    def read(self) -> bytes:
        """The whole body."""
        return b"".join(self.pieces())

    def pieces(self) -> Iterator[bytes]:
        """The body as it arrives. Raises Broken where it ends before its declared end."""
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            yield from self._chunks()
        elif (length := self.headers.get("content-length")) is not None:
            yield from self._exactly(int(length))
        else:
            while piece := self._stream.read1(PIECE):  # type: ignore[attr-defined]
                yield piece

    def _chunks(self) -> Iterator[bytes]:
        while True:
            size_text = self._line().partition(b";")[0]
            try:
                size = int(size_text, 16)
            except ValueError as error:
                raise Broken(f"a chunk of size {size_text!r}") from error
            if size == 0:
                while self._line():
                    pass  # trailers: nothing in them is ours
                return
            yield from self._exactly(size)
            self._line()

    def _exactly(self, size: int) -> Iterator[bytes]:
        left = size
        while left:
            piece = self._stream.read1(min(left, PIECE))  # type: ignore[attr-defined]
            if not piece:
                raise Broken(f"the answer ended {left} bytes early")
            left -= len(piece)
            yield piece

    def _line(self) -> bytes:
        line = self._stream.readline(MAX_LINE)
        if not line.endswith(b"\n"):
            raise Broken("the answer ended in the middle of its head")
        return line.rstrip(b"\r\n")


def open_answer(path: str, method: str, target: str, body: bytes | None, timeout_s: float | None) -> Answer:
    """Sends one request and returns the answer's head, body unread. `timeout_s` limits each wait for bytes.
    Raises OSError where the socket cannot be reached, Broken where the answer did not come whole."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)  # before the time limit: a busy daemon's queue is waited for, not an error
        connection.settimeout(timeout_s)
        with suppress(BrokenPipeError, ConnectionResetError):
            # the daemon may have answered (413) and closed before it took the whole body: the answer tells
            connection.sendall(_request(method, target, body), socket.MSG_NOSIGNAL)
        try:
            return Answer(connection)
        except ConnectionResetError as error:
            raise Broken(str(error)) from error
    except BaseException:
        connection.close()
        raise


def _request(method: str, target: str, body: bytes | None) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: gpuqueued", "Connection: close", "Accept: */*"]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + (body or b"")
