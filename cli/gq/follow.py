"""Following one job: its log as it grows, over all its attempts, and its end."""

import sys
from typing import Any, NamedTuple

from gpuqueue.wire.states import FINAL_STATES, WAITING_STATES, JobState
from gq import client
from gq.exits import TROUBLE
from gq.terminal import plain
from gq.words import standing

POLL_S = 1  # between looks at a job that has no log to follow
HOLD_S = 20  # how long one request asks the daemon to wait for a job's end
LOG_HOLD_S = 4  # and for more of its log
PIECE = 1024 * 1024


class Piece(NamedTuple):
    """A stretch of an attempt's log. `attempt` is 0 before the first; `ended`: nothing will be appended any more."""

    data: bytes
    offset: int
    next_offset: int
    size: int
    attempt: int
    ended: bool


def read_piece(job: int, attempt: int | None, offset: int, limit: int = PIECE, wait_s: int = 0) -> Piece:
    """The log from `offset` on. With `wait_s` the daemon holds the request until there is something."""
    query = {"attempt": attempt, "offset": offset, "limit": limit, "wait_s": wait_s or None}
    answer = client.send("GET", f"/v1/jobs/{job}/log", query, timeout_s=client.REQUEST_S + wait_s)
    with answer:
        data = client.read_all(answer)
        first = int(answer.headers.get("gq-offset", offset))
        return Piece(
            data,
            first,
            int(answer.headers.get("gq-next-offset", first + len(data))),
            int(answer.headers.get("gq-size", first + len(data))),
            int(answer.headers.get("gq-attempt", attempt or 0)),
            answer.headers.get("gq-ended") == "1",
        )


def write(piece: Piece) -> None:
    """The piece as the job wrote it, byte for byte."""
    sys.stdout.buffer.write(piece.data)
    sys.stdout.buffer.flush()


def follow(job: int, start: int = 0) -> Any:
    """Writes the job's log until the job has ended, attempt after attempt; says on the standard error what
    the job waits for. `start` is the offset in the newest attempt's log. Returns the job's last view."""
    view = client.get(f"/v1/jobs/{job}").job
    attempt, offset, waits = view.attempt, start, Waits()
    if attempt == 0:
        attempt, offset = 1, 0
    while True:
        if view.attempt >= attempt:
            _follow_attempt(job, attempt, offset, waits)
            attempt, offset = attempt + 1, 0
        view = await_end(job, POLL_S)
        if view.attempt < attempt:
            if view.state in FINAL_STATES:
                return view
            waits.say(view)


def await_end(job: int, wait_s: int) -> Any:
    """The job once it has ended, or as it is after `wait_s`; a daemon that is away meanwhile is waited for."""
    query = {"timeout_s": wait_s}
    return client.patiently(lambda: client.ask("GET", f"/v1/jobs/{job}/wait", query, wait_s=wait_s))


def _follow_attempt(job: int, attempt: int, offset: int, waits: "Waits") -> None:
    while True:
        piece = client.patiently(lambda: read_piece(job, attempt, offset, wait_s=LOG_HOLD_S))  # noqa: B023 - called at once
        write(piece)
        offset = piece.next_offset
        if piece.ended and offset >= piece.size:
            return
        if not piece.data:  # it is silent, or its attempt is over and the next one waits
            waits.say(await_end(job, 0))


class Waits:
    """Says on the standard error why a job waits: once for each reason, not for each of its numbers."""

    def __init__(self) -> None:
        self._said: tuple[str, str, int] | None = None

    def say(self, view: Any) -> None:
        reason = (view.state, view.reason_code, view.attempt)
        if view.state in WAITING_STATES and reason != self._said:
            print(f"gq: {plain(standing(view))}", file=sys.stderr)
        self._said = reason


def own_status(view: Any) -> int:
    """What `gq wait` exits with for a job that has ended; 125 where its exit status is lost."""
    return TROUBLE if view.wait_status is None else int(view.wait_status)


def goes_on(job: int) -> str:
    """What is said when somebody stops following a job."""
    return f"job {job} goes on; `gq logs -f {job}` follows it again, `gq cancel {job}` ends it"


def ended_line(view: Any) -> str:
    """How the job ended, for the standard error."""
    mark = "" if view.state == JobState.SUCCEEDED else f": {view.reason}" if view.reason else ""
    return plain(f"job {view.id} {view.state}{mark}")
