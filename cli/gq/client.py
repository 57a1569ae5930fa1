"""Asking gpuqueued: which socket, what was asked, and what an answer that is a "no" means.

Answers are read by shape: a Record has the fields of the view in `gpuqueue.wire.jobs` that the route
documents, by attribute, without the cost of building it. Fields that a newer daemon adds do no harm.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from gpuqueue.wire.errors import ErrorCode, GpuqueueError
from gq.exits import NoDaemon, usage
from gq.http import Answer, Broken, open_answer

REQUEST_S = 30  # how long an answer may take, beyond what the request itself asks to wait
RETRY_PAUSES_S = (0.2, 0.5, 1.0, 2.0, 4.0)
PATIENCE_S = 300
SYSTEM_SOCKET = "/run/gpuqueue/gpuqueued.sock"
START_HINT = "start it: `systemctl start gpuqueued`, or for yourself alone `gpuqueued serve`"

LOST_HINT = "try again; if it stays so, see `journalctl -u gpuqueued` and GQ_SOCKET"

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")

T = TypeVar("T")


class Record(dict[str, Any]):
    """A JSON object whose fields read as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self["class" if name == "job_class" else name]
        except KeyError:
            raise GpuqueueError(
                ErrorCode.INTERNAL,
                f"gpuqueued's answer has no {name!r}: it and gq are of different releases",
                "see `gq version`",
            ) from None


class LostConnection(GpuqueueError):
    """The daemon was there, and went away before it had answered: what was asked may or may not be done."""


def socket_path() -> str:
    """GQ_SOCKET, else the system's socket, else one's own: the first that exists. Raises NoDaemon."""
    if named := os.environ.get("GQ_SOCKET"):
        return named
    candidates = [SYSTEM_SOCKET, *_own_sockets()]
    for candidate in candidates:
        if os.path.exists(candidate):  # noqa: PTH110 - pathlib would double what importing gq costs
            return candidate
    raise NoDaemon(ErrorCode.UNAVAILABLE, f"no gpuqueued here: no socket at {' or '.join(candidates)}", START_HINT)


def _own_sockets() -> list[str]:
    """Where a daemon that serves one login alone puts its socket: its state directory where the session has
    no runtime directory."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")  # noqa: PTH111
    return [*([f"{runtime}/gpuqueue/gpuqueued.sock"] if runtime else []), f"{state}/gpuqueue/gpuqueued.sock"]


def get(path: str, **query: str | int | None) -> Any:
    """What the route answers, as Records, lists and plain values. Raises GpuqueueError."""
    return ask("GET", path, query)


def post(path: str, body: object = None) -> Any:
    return ask("POST", path, body=body)


def ask(
    method: str,
    path: str,
    query: Mapping[str, str | int | None] | None = None,
    body: object = None,
    wait_s: float = 0,
) -> Any:
    """One request and its answer. `wait_s` is how long the request itself asks the daemon to hold it."""
    with send(method, path, query, body, REQUEST_S + wait_s) as answer:
        return parsed(read_all(answer))


def ask_again(method: str, path: str, body: object) -> Any:
    """As `ask`, for a request that carries its own idempotency key (J5): asked again, a few times, where the
    daemon goes away in the middle of it."""
    lost: LostConnection | None = None
    for pause_s in RETRY_PAUSES_S:
        try:
            return ask(method, path, body=body)
        except LostConnection as error:
            lost = error
        except NoDaemon:
            if lost is None:
                raise
        time.sleep(pause_s)
    raise LostConnection(
        ErrorCode.UNAVAILABLE,
        "gpuqueued went away in the middle of the request, and may or may not have taken it",
        "once it is back, `gq status` tells",
    ) from lost


def patiently(action: Callable[[], T]) -> T:
    """What `action` returns; while the daemon is away (jobs outlive its restarts), it is tried again for some
    minutes. For requests that only read."""
    deadline = time.monotonic() + PATIENCE_S
    said = False
    while True:
        try:
            return action()
        except (NoDaemon, LostConnection):
            if time.monotonic() > deadline:
                raise
        if not said:
            print("gq: gpuqueued went away; waiting for it to come back", file=sys.stderr)
            said = True
        time.sleep(1)


def send(
    method: str,
    path: str,
    query: Mapping[str, str | int | None] | None = None,
    body: object = None,
    timeout_s: float | None = REQUEST_S,
) -> Answer:
    """The answer to one request, its body unread, its status a success. Raises GpuqueueError."""
    where = socket_path()
    encoded = None if body is None else json.dumps(body).encode("ascii")
    try:
        answer = open_answer(where, method, _target(path, query), encoded, timeout_s)
    except Broken as error:
        raise LostConnection(
            ErrorCode.UNAVAILABLE, f"gpuqueued at {where} did not answer: {error}", LOST_HINT
        ) from error
    except OSError as error:
        raise _unreachable(where, error, timeout_s) from error
    if answer.status >= 300:
        with answer:
            raise _refusal(answer, where)
    return answer


def lines(answer: Answer) -> Iterator[str]:
    """The body's lines as they arrive. Raises LostConnection where it breaks off."""
    rest = b""
    try:
        for piece in answer.pieces():
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                yield line.rstrip(b"\r").decode("utf-8", "replace")
    except (Broken, OSError) as error:
        raise _cut_off(error) from error


def read_all(answer: Answer) -> bytes:
    """The whole body. Raises LostConnection where it breaks off."""
    try:
        return answer.read()
    except (Broken, OSError) as error:
        raise _cut_off(error) from error


def _cut_off(error: Exception) -> LostConnection:
    return LostConnection(ErrorCode.UNAVAILABLE, f"the connection to gpuqueued broke: {error}", LOST_HINT)


def parsed(text: bytes) -> Any:
    """JSON as Records, lists and plain values; None for an empty text."""
    try:
        return json.loads(text, object_hook=Record) if text else None
    except ValueError as error:
        raise GpuqueueError(ErrorCode.INTERNAL, "what answers there is not gpuqueued", "check GQ_SOCKET") from error


def _target(path: str, query: Mapping[str, str | int | None] | None) -> str:
    given = [f"{name}={quote(str(value))}" for name, value in (query or {}).items() if value is not None]
    return f"{path}?{'&'.join(given)}" if given else path


def quote(text: str) -> str:
    """The text as one part of a URL."""
    return "".join(chr(b) if b in _PLAIN else f"%{b:02X}" for b in text.encode("utf-8", "surrogateescape"))


def _unreachable(where: str, error: OSError, timeout_s: float | None) -> GpuqueueError:
    if isinstance(error, TimeoutError):
        hint = "it may be starting or overloaded: `journalctl -u gpuqueued` says more"
        return GpuqueueError(ErrorCode.UNAVAILABLE, f"gpuqueued did not answer within {timeout_s:.0f} s", hint)
    if isinstance(error, PermissionError):
        hint = "its file mode decides who may: ask who runs gpuqueued"
        return GpuqueueError(ErrorCode.NOT_PERMITTED, f"you may not open gpuqueued's socket {where}", hint)
    if isinstance(error, FileNotFoundError):
        return NoDaemon(ErrorCode.UNAVAILABLE, f"no gpuqueued here: no socket at {where}", START_HINT)
    if isinstance(error, ConnectionRefusedError):
        return NoDaemon(ErrorCode.UNAVAILABLE, f"no gpuqueued runs: nothing answers at {where}", START_HINT)
    if isinstance(error, ConnectionResetError):
        return LostConnection(ErrorCode.UNAVAILABLE, f"gpuqueued at {where} broke the connection", LOST_HINT)
    if error.errno is None:  # Python's own: the path is longer than a socket's may be
        return usage(f"{where!r} cannot be a socket: {error}", "set GQ_SOCKET to a shorter path")
    return NoDaemon(ErrorCode.UNAVAILABLE, f"gpuqueued cannot be reached at {where}: {error.strerror}", START_HINT)


def _refusal(answer: Answer, where: str) -> GpuqueueError:
    """The daemon's "no", from its RFC 9457 problem."""
    if "problem+json" not in answer.headers.get("content-type", ""):
        message = f"what answers at {where} is not gpuqueued (HTTP {answer.status})"
        return GpuqueueError(ErrorCode.INTERNAL, message, "check GQ_SOCKET")
    problem = parsed(read_all(answer)) or {}
    code = str(problem.get("code"))
    known = code in ErrorCode._value2member_map_  # a newer daemon may have codes that this gq has not
    return GpuqueueError(
        ErrorCode(code) if known else ErrorCode.INTERNAL,
        problem.get("detail") or problem.get("title") or f"HTTP {answer.status}",
        problem.get("hint") or "",
        problem.get("fields"),
    )
