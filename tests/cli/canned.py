"""A real HTTP server on a real Unix socket that gives the answers it was given: the far end of `gq`'s own
contract. What the daemon answers is tested with the daemon."""

import json
import socketserver
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from gpuqueue.wire.jobs import to_json


class Asked(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    body: Any


class Answer(NamedTuple):
    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed
    chunks: list[bytes] | None = None


def ok(value: Any, status: int = 200) -> Answer:
    return Answer(status, json.dumps(to_json(value)).encode())


def problem(status: int, code: str, detail: str, hint: str = "") -> Answer:
    body = {"type": "about:blank", "title": "No", "status": status, "detail": detail, "code": code, "hint": hint}
    return Answer(status, json.dumps(body | {"fields": {}}).encode(), "application/problem+json")


Respond = Callable[[Asked], Answer | None]


class CannedDaemon:
    """`respond` gives the answer to a request; None breaks the connection without one."""

    def __init__(self, socket: Path, respond: Respond) -> None:
        self.socket = socket
        self.asked: list[Asked] = []
        self._server = _Server(str(socket), _handler(self, respond))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> "CannedDaemon":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self.socket.unlink(missing_ok=True)


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Clients that go away are what some tests are about."""


def _handler(daemon: CannedDaemon, respond: Respond) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def address_string(self) -> str:
            return "unix"

        def log_message(self, *_: object) -> None:
            """Tests say what matters."""

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length)) if length else None
            asked = Asked(self.command, parts.path, dict(parse_qsl(parts.query)), body)
            daemon.asked.append(asked)
            self.close_connection = True
            answer = respond(asked)
            if answer is None:
                return
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if answer.chunks is None:
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)
                return
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for chunk in answer.chunks:
                self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")

        do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 - the names the library calls

    return Handler
