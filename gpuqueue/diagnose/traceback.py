"""Python tracebacks in a log: their exceptions, and which one the program died of."""

import re
from dataclasses import dataclass

from gpuqueue.diagnose.log import prefix_of, stream_of, without_prefix

_START = "Traceback (most recent call last)"
_MESSAGE_LINES = 4
_EXCEPTION = re.compile(
    r"^(?P<type>(?:[A-Za-z_][\w<>]*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit|Fault|Timeout|Expired"
    r"|Warning|Closed|Failure|NotFound|Exhausted|Cancelled"
    r"|Refused))\b(?:\s*\([^)]*\))?\s*(?::\s?(?P<message>.*))?$"
)
# Any class may be raised: what stands right below the frames is one, whatever its name.
_BELOW_FRAMES = re.compile(r"^(?:[\w<>]+\.)*[^\W\d]\w*(?::(?:\s.*)?)?$")
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
# Python and its logging print these, and the program goes on.
_NO_DEATH = ("Exception ignored", "--- Logging error ---")
_NEAR_LINES = 4
# Wrappers that only report that something else failed: another process, or the exceptions of a group.
_WRAPPERS = re.compile(
    r"ChildFailedError|CalledProcessError|ProcessRaisedException|ProcessExitedException|RayTaskError"
    r"|SystemExit|Engine core initialization failed|RayActorError|SignalException|ExceptionGroup"
)
_ECHOES = re.compile(
    r"ConnectionResetError|ConnectionRefusedError|ConnectionAbortedError|BrokenPipeError|\bEOFError"
    r"|Dist(?:Backend|Network|Store)Error|Connection (?:was )?(?:likely )?closed|Connection reset by peer"
)


@dataclass(frozen=True, slots=True)
class Trace:
    """One traceback: where it starts, where its exception stands, and what that says.

    `chained` is True where Python says that it arose from the one before it; `message_end` is the last line
    of a message that goes on after the exception's own line; `ignored` says that nobody died of it.
    """

    start: int
    end: int
    exception: str
    chained: bool
    message_end: int = 0
    ignored: bool = False

    @property
    def is_wrapper(self) -> bool:
        """True where it only passes on the failure of another process."""
        return bool(_WRAPPERS.search(self.exception))

    @property
    def is_echo(self) -> bool:
        """True where it says that another process was gone: that one's own error is the cause."""
        return is_echo(self.exception)


@dataclass(slots=True)
class _Open:
    """A traceback whose exception is still to come. `adjoins`: nothing but its frames was seen so far."""

    start: int
    indent: int
    chained: bool
    ignored: bool
    adjoins: bool = False
    disturbed: bool = False


def is_echo(exception: str) -> bool:
    """True where the exception is what a process raises when the one that it talked to is gone."""
    return bool(_ECHOES.search(exception))


def exception_of(line: str) -> str | None:
    """The exception that the line ends a traceback with, without what loggers put before it; else None."""
    bare = without_prefix(line)
    return bare if _EXCEPTION.match(bare) else None


def traces(lines: tuple[str, ...]) -> tuple[Trace, ...]:
    """All tracebacks whose exception line is still in the log; those of several ranks may be interleaved."""
    found: list[Trace] = []
    pending: dict[str, _Open] = {}
    for number, line in enumerate(lines):
        stream = stream_of(line)
        if _START in line:
            pending[stream] = _opened(lines, number, found)
            continue
        if (begun := pending.get(stream)) is None:
            continue
        bare = without_prefix(line)
        exception = _ends(begun, bare)
        if exception is not None:
            found.append(
                Trace(begun.start, number, exception, begun.chained, _message_end(lines, number), begun.ignored)
            )
            del pending[stream]
    return tuple(found)


def _opened(lines: tuple[str, ...], at: int, found: list[Trace]) -> _Open:
    near = lines[max(0, at - _NEAR_LINES) : at]
    chained = any(mark in line for line in near for mark in _CHAINED)
    said = next((line for line in reversed(near) if line.strip()), "")
    ignored = any(mark in said for mark in _NO_DEATH) or (chained and bool(found) and found[-1].ignored)
    bare = without_prefix(lines[at])
    indent = 0 if bare.lstrip().startswith("+") else _indent(bare)  # "  + Exception Group Traceback"
    return _Open(at, indent, chained, ignored)


def _ends(begun: _Open, bare: str) -> str | None:
    """The exception, where this line of the traceback's own stream is one."""
    if not bare.strip() or _indent(bare) > begun.indent:
        begun.adjoins = not begun.disturbed
        return None
    bare = bare.strip()
    if _EXCEPTION.match(bare) or (begun.adjoins and _BELOW_FRAMES.match(bare)):
        return bare
    begun.adjoins, begun.disturbed = False, True
    return None


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _message_end(lines: tuple[str, ...], at: int) -> int:
    """A message goes on behind the same rank or logger; what another prints in between ends it."""
    end = at
    for number in range(at + 1, min(len(lines), at + 1 + _MESSAGE_LINES)):
        line = lines[number]
        if not line.strip() or prefix_of(line) != prefix_of(lines[at]):
            break
        if _START in line or exception_of(line) is not None:
            break
        end = number
    return end


def death(found: tuple[Trace, ...]) -> Trace | None:
    """The traceback that the program died of: the last that is no mere wrapper, or the last wrapper."""
    deadly = [trace for trace in found if not trace.ignored]
    own = [trace for trace in deadly if not trace.is_wrapper] or deadly
    return own[-1] if own else None


def chain_start(found: tuple[Trace, ...], of: Trace) -> int:
    """The line on which the chain of exceptions begins that ended in `of`."""
    start = of.start
    for trace in reversed([trace for trace in found if trace.end <= of.end]):
        start = trace.start
        if not trace.chained:
            break
    return start
