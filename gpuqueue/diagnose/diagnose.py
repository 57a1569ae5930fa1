"""The judgement: one finding for one ended attempt, by the order of precedence below."""

import re
from dataclasses import dataclass, replace
from itertools import pairwise

from gpuqueue.diagnose import memory
from gpuqueue.diagnose.clue import Clue, Strength, Wording, find_clues, wording
from gpuqueue.diagnose.finding import Cause, Confidence, Evidence, Finding, Retry
from gpuqueue.diagnose.launcher import FirstFailure, first_failure
from gpuqueue.diagnose.log import lines_of, rank_of
from gpuqueue.diagnose.outside import NOT_EXECUTABLE, NOT_FOUND, kernel_clues, not_by_the_kernel, status_clues
from gpuqueue.diagnose.phase import phase_at
from gpuqueue.diagnose.progress import Progress, lines_after, progress_of, said_done, was_survived, was_told_in_passing
from gpuqueue.diagnose.stopped import own_lines, stopped_by_us
from gpuqueue.diagnose.traceback import Trace, chain_start, death, is_echo, traces
from gpuqueue.diagnose.wordings import (
    collectives,
    device,
    driver,
    endings,
    frameworks_memory,
    host,
    libraries_memory,
    program,
    torch_memory,
)

_CERTAIN, _USUAL, _HINT = Strength.certain, Strength.usual, Strength.hint

# Where causes compete, the first row that was met decides. Above it stand only: a stop of ours, then success.
ORDER: tuple[tuple[Cause, Strength], ...] = (
    (Cause.hardware, _CERTAIN),  # a dead card makes every later message noise
    (Cause.driver, _CERTAIN),  # so does a driver that answers nobody
    (Cause.shm_full, _CERTAIN),  # "no space left" with /dev/shm in it is not a disk
    (Cause.host_out_of_memory, _CERTAIN),  # the kernel's killer leaves only echoes in other ranks
    (Cause.disk_full, _CERTAIN),
    (Cause.assertion, _CERTAIN),  # after an assert every CUDA call fails, with any face
    (Cause.neighbour, _CERTAIN),
    (Cause.out_of_memory, _CERTAIN),  # memory.py splits this: cap, neighbour, fragmentation, leak
    (Cause.wrong_build, _CERTAIN),
    (Cause.illegal_access, _CERTAIN),
    (Cause.missing_module, _CERTAIN),
    (Cause.program_error, _CERTAIN),  # faults that have a name
    (Cause.timeout, _CERTAIN),
    (Cause.hardware, _USUAL),
    (Cause.driver, _USUAL),
    (Cause.out_of_memory, _USUAL),  # faces: cuBLAS, cuDNN
    (Cause.assertion, _USUAL),
    (Cause.disk_full, _USUAL),
    (Cause.shm_full, _USUAL),
    (Cause.host_out_of_memory, _USUAL),  # SIGKILL, workers that vanished
    (Cause.wrong_build, _USUAL),
    (Cause.illegal_access, _USUAL),
    (Cause.signal, _CERTAIN),  # one rank's crash shows as broken connections in the others
    (Cause.nccl, _CERTAIN),
    (Cause.nccl, _USUAL),
    (Cause.missing_module, _USUAL),
    (Cause.timeout, _USUAL),
    (Cause.program_error, _USUAL),  # a traceback that no table explains
    (Cause.signal, _USUAL),
    *((cause, _HINT) for cause in Cause),  # warnings, where nothing else tells
)
# Mostly echoes of another process's death: an unexplained traceback before them is the cause.
_ECHOES = frozenset(
    {
        (Cause.nccl, _CERTAIN),
        (Cause.nccl, _USUAL),
        (Cause.timeout, _USUAL),
        (Cause.host_out_of_memory, _USUAL),
    }
)

_TABLE: tuple[Wording, ...] = (
    *torch_memory.TABLE,
    *libraries_memory.TABLE,
    *frameworks_memory.TABLE,
    *host.TABLE,
    *device.TABLE,
    *driver.TABLE,
    *collectives.TABLE,
    *program.TABLE,
    *endings.TABLE,
)
_TRACE_FOLLOWS = 40  # lines
_AT_THE_END = 4  # lines
_FRAMES_BEFORE = 6  # lines
_SHARED_MEMORY = re.compile(r"\bSemLock\b|shared_memory|_share_filename|_new_shared|shm_open")
# Lines of other output after a message; beyond that the run lived on, and the message is a guess.
_FAR_FROM_THE_END = 12
_FAR_FOR_A_TRACEBACK = 3  # servers print tracebacks and go on

_TRACEBACK = wording(
    Cause.program_error,
    "",
    "The program raised this; the traceback in the log says where.",
    Retry.yes,
    _USUAL,
)
_PASSED_ON = wording(
    Cause.program_error,
    "",
    "Something that the program started failed; what that printed says why.",
    Retry.yes,
    Strength.hint,
)


@dataclass(frozen=True, slots=True)
class _Reading:
    """A log, read once."""

    lines: tuple[str, ...]
    traces: tuple[Trace, ...]
    progress: Progress
    first: FirstFailure | None  # in the words of a launcher of several processes

    @property
    def several(self) -> bool:
        """True where more than one process wrote the log: the first error counts, else the last."""
        deadly = [trace for trace in self.traces if not trace.ignored]
        if self.first is not None or (deadly and deadly[-1].is_wrapper):
            return True
        return any(rank_of(self.lines[trace.end]) is not None for trace in deadly)


def diagnose(evidence: Evidence) -> Finding:
    """The most likely cause of the end of an attempt. Deterministic, and never raises, whatever the text.

    `Cause.none` means that it went well or that nothing shows why it ended: the confidence tells which.
    """
    lines, stop_reason = own_lines(lines_of(evidence.log_tail))
    reason = evidence.stop_reason or (None if evidence.succeeded else stop_reason)
    if reason:
        return stopped_by_us(reason)
    reading = _Reading(lines, traces(lines), progress_of(lines), first_failure(lines))
    if evidence.succeeded:
        return _success(reading)
    clues = _all_clues(reading, evidence)
    best = _first_in_order([clue for clue in clues if not _is_past(clue, reading, evidence)], reading)
    if best is not None:
        return _finding(best, reading, evidence)
    if evidence.failed:
        return _unexplained(reading, _first_in_order(clues, reading), evidence)
    return _nothing(lines)


def _all_clues(reading: _Reading, evidence: Evidence) -> list[Clue]:
    lines = reading.lines
    said = find_clues(lines, _TABLE)
    explained = {clue.line for clue in said if clue.wording.strength is not _HINT}
    clues = [*kernel_clues(lines, evidence), *said, *_raised(reading, explained), *status_clues(lines, evidence)]
    return [not_by_the_kernel(clue, evidence) for clue in clues]


def _raised(reading: _Reading, explained: set[int]) -> list[Clue]:
    """The tracebacks that no table explains, the likeliest cause of the end first.

    What only passes on a failure counts where there is nothing else. Of a chain the last exception counts, which
    is the one that got through; of one process's the last, of several the first that is no echo of another's end.
    """
    deadly = (trace for trace in reading.traces if not trace.ignored)
    new = [trace for trace in deadly if explained.isdisjoint(range(trace.end, trace.message_end + 1))]
    own = [trace for trace in new if not trace.is_wrapper]
    if not own:
        row = _PASSED_ON if explained else _TRACEBACK
        return [Clue(row, trace.end, trace.exception) for trace in new[-1:]]
    handled = {before.end for before, after in pairwise(own) if after.chained and before.end < after.start}
    own = [trace for trace in own if trace.end not in handled]
    if not reading.several:
        own.reverse()
    own.sort(key=lambda trace: (trace.is_echo, not _failed_first(trace, reading)))
    return [Clue(_TRACEBACK, trace.end, trace.exception) for trace in own]


def _failed_first(trace: Trace, reading: _Reading) -> bool:
    first = reading.first
    if first is None:
        return False
    rank = rank_of(reading.lines[trace.end])
    return trace.start > first.line or (rank is not None and rank == first.rank)


def _is_past(clue: Clue, reading: _Reading, evidence: Evidence) -> bool:
    """True where the run outlived the message, so that it is not why the run ended."""
    if clue.line >= len(reading.lines):
        return False
    if clue.wording.strength is _HINT and not evidence.failed:
        return True
    if any(trace.ignored and trace.start <= clue.line <= trace.message_end for trace in reading.traces):
        return True
    if was_survived(reading.lines, clue.line) or reading.progress.went_on(clue.line):
        return True
    if not evidence.failed and was_told_in_passing(reading.lines, clue.line):
        return True
    if clue.wording.cause is Cause.missing_module:
        # Optional imports fail with a traceback, and programs live without them.
        last = death(reading.traces)
        return last is not None and clue.line < chain_start(reading.traces, last)
    return False


def _first_in_order(clues: list[Clue], reading: _Reading) -> Clue | None:
    for rung in ORDER:
        for clue in clues:
            if (clue.wording.cause, clue.wording.strength) == rung:
                return _root_of(clue, clues, reading) if rung in _ECHOES else clue
    return None


def _root_of(echo: Clue, clues: list[Clue], reading: _Reading) -> Clue:
    """The error that the echo is one of: of another rank it may be printed later. The echo, where there is none."""
    if reading.first is not None and reading.first.was_killed:
        return echo
    roots = (clue for clue in clues if clue.wording is _TRACEBACK and not is_echo(clue.text))
    return next((clue for clue in roots if clue.line < echo.line or reading.several), echo)


def _finding(clue: Clue, reading: _Reading, evidence: Evidence) -> Finding:
    row = clue.wording
    phase = row.phase or phase_at(reading.lines, _place(clue, reading))
    if row.cause is Cause.disk_full and _concerns_shared_memory(reading.lines, clue.line):
        finding = Finding(Cause.shm_full, row.confidence, clue.text, host.CLEAN_SHM, row.retry, phase)
    elif row.cause is Cause.out_of_memory:
        finding = memory.judge(clue, reading.lines, evidence, phase)
    elif row.cause is Cause.neighbour and (greedy := memory.judge_server_start(clue, evidence, phase)):
        finding = greedy
    else:
        finding = Finding(row.cause, row.confidence, clue.text, clue.advice, row.retry, phase)
    shells = evidence.exit_status in (NOT_FOUND, NOT_EXECUTABLE) and clue.line < len(reading.lines)
    if row.cause is Cause.missing_module and shells:
        return replace(finding, confidence=Confidence.high)  # the shell's words and its status say the same
    if row is _TRACEBACK and evidence.failed:
        return replace(finding, confidence=Confidence.high)
    far = _FAR_FOR_A_TRACEBACK if row is _TRACEBACK else _FAR_FROM_THE_END
    if not evidence.failed and lines_after(reading.lines, clue.line) > far:
        return replace(finding, confidence=Confidence.low)
    return finding


def _concerns_shared_memory(lines: tuple[str, ...], at: int) -> bool:
    """True where the frames before "no space left" were making semaphores or shared memory."""
    return any(_SHARED_MEMORY.search(line) for line in lines[max(0, at - _FRAMES_BEFORE) : at])


def _place(clue: Clue, reading: _Reading) -> int:
    """The line whose surroundings tell the phase: native code prints its message before the traceback."""
    near = (trace for trace in reading.traces if clue.line < trace.start <= clue.line + _TRACE_FOLLOWS)
    following = next(near, None)
    return following.end if following else min(clue.line, len(reading.lines) - 1)


def _success(reading: _Reading) -> Finding:
    last = death(reading.traces)
    at_the_end = last is not None and len(reading.lines) - last.end <= _AT_THE_END
    if last is not None and at_the_end and not reading.progress.went_on(last.end):
        return Finding(
            Cause.none,
            Confidence.medium,
            last.exception,
            "Exit status 0, though the log ends in a traceback: if the command ends in `| tee`, use `set -o pipefail`.",
            Retry.no,
        )
    return Finding(Cause.none, Confidence.high, "exit status 0", "The job succeeded.", Retry.no)


def _nothing(lines: tuple[str, ...]) -> Finding:
    if said_done(lines):
        return Finding(Cause.none, Confidence.medium, _last(lines), "The log ends well.", Retry.no)
    return Finding(
        Cause.none,
        Confidence.low,
        _last(lines),
        "Nothing in the log shows a failure; with the exit status more can be said.",
        Retry.no,
    )


def _unexplained(reading: _Reading, survived: Clue | None, evidence: Evidence) -> Finding:
    """A job that failed, and a log that does not say why: a warning that it outlived is the best guess."""
    if survived is not None and survived.wording.cause is not Cause.program_error:
        return replace(_finding(survived, reading, evidence), confidence=Confidence.low)
    status = f"exit status {evidence.exit_status}"
    return Finding(
        Cause.program_error,
        Confidence.low,
        _last(reading.lines) or status,
        f"It ended with {status}, and the end of the log does not say why.",
        Retry.yes,
        phase_at(reading.lines, len(reading.lines) - 1),
    )


def _last(lines: tuple[str, ...]) -> str:
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
