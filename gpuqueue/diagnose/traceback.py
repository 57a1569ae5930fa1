"""Python tracebacks in a log: their exceptions, and which one the program died of."""

import re
from dataclasses import dataclass

from gpuqueue.diagnose.log import without_prefix

_START = "Traceback (most recent call last)"
_MESSAGE_LINES = 4
_EXCEPTION = re.compile(
    r"^(?P<type>(?:[A-Za-z_][\w<>]*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit|Fault|Timeout|Expired"
    r"|Warning|Closed|Failure|NotFound|Exhausted|Cancelled"
    r"|Refused))\b(?:\s*\([^)]*\))?\s*(?::\s?(?P<message>.*))?$"
)
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
# Wrappers that only report that some other process failed.
_WRAPPERS = re.compile(
    r"ChildFailedError|CalledProcessError|ProcessRaisedException|ProcessExitedException|RayTaskError"
    r"|SystemExit|Engine core initialization failed|RayActorError|SignalException"
)


@dataclass(frozen=True, slots=True)
class Trace:
    """One traceback: where it starts, where its exception stands, and what that says.

    `chained` is True where Python says that it arose from the one before it; `message_end` is the last line
    of a message that goes on after the exception's own line.
    """

    start: int
    end: int
    exception: str
    chained: bool
    message_end: int = 0

    @property
    def is_wrapper(self) -> bool:
        """True where it only passes on the failure of another process."""
        return bool(_WRAPPERS.search(self.exception))


def exception_of(line: str) -> str | None:
    """The exception that the line ends a traceback with, without what loggers put before it; else None."""
    bare = without_prefix(line)
    return bare if _EXCEPTION.match(bare) else None


def traces(lines: tuple[str, ...]) -> tuple[Trace, ...]:
    """All tracebacks whose exception line is still in the log."""
    found: list[Trace] = []
    start: int | None = None
    chained = False
    for number, line in enumerate(lines):
        if _START in line:
            chained = any(mark in earlier for earlier in lines[max(0, number - 4) : number] for mark in _CHAINED)
            start = number
            continue
        if start is None:
            continue
        exception = exception_of(line)
        if exception is not None:
            found.append(Trace(start, number, exception, chained, _message_end(lines, number)))
            start = None
    return tuple(found)


def _message_end(lines: tuple[str, ...], at: int) -> int:
    end = at
    for number in range(at + 1, min(len(lines), at + 1 + _MESSAGE_LINES)):
        line = lines[number]
        if not line.strip() or _START in line or exception_of(line) is not None:
            break
        end = number
    return end


def death(found: tuple[Trace, ...]) -> Trace | None:
    """The traceback that the program died of: the last that is no mere wrapper, or the last wrapper."""
    own = [trace for trace in found if not trace.is_wrapper] or list(found)
    return own[-1] if own else None


def chain_start(found: tuple[Trace, ...], of: Trace) -> int:
    """The line on which the chain of exceptions begins that ended in `of`."""
    start = of.start
    for trace in reversed([trace for trace in found if trace.end <= of.end]):
        start = trace.start
        if not trace.chained:
            break
    return start
