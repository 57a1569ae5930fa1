"""The judgement: one finding for one ended attempt, by the order of precedence below."""

import signal as signals

from gpuqueue.diagnose import memory
from gpuqueue.diagnose.clue import Clue, Strength, Wording, find_clues, wording
from gpuqueue.diagnose.finding import Cause, Confidence, Evidence, Finding, Retry
from gpuqueue.diagnose.log import lines_of
from gpuqueue.diagnose.phase import phase_at
from gpuqueue.diagnose.progress import lines_after, said_done, was_survived, went_on
from gpuqueue.diagnose.stopped import stopped_by_us
from gpuqueue.diagnose.traceback import Trace, chain_start, death, traces
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
from gpuqueue.diagnose.xid import XidClass, XidEvent, parse_all

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
# These are mostly echoes of another process's death: an unexplained traceback before them is the cause.
_ECHOES = frozenset({Cause.nccl, Cause.timeout, Cause.signal, Cause.host_out_of_memory})

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
_FAR_FROM_THE_END = 40  # lines of other output: whatever was said before them, the run lived on

_TRACEBACK = wording(
    Cause.program_error,
    "",
    "The program raised this; the traceback in the log says where.",
    Retry.yes,
    _USUAL,
)
_XID_APPLICATION = wording(
    Cause.illegal_access,
    "",
    "The driver stopped the program ({meaning}, Xid {number}): a bug of the program or of an extension, "
    "unless it "
    "repeats on one card with different jobs.",
    Retry.once,
)
_XID_HARDWARE = wording(
    Cause.hardware,
    "",
    "Card {pci}: {meaning} (Xid {number}). Drain the card; the job is requeued free of charge.",
    Retry.free,
)
_BY_SIGNAL: dict[int, Wording] = {
    int(signals.SIGKILL): wording(
        Cause.host_out_of_memory,
        "",
        "SIGKILL that gpuqueue did not send is nearly always the kernel out of host memory{total}: fewer "
        "workers, less "
        "data in memory, or a larger --mem.",
        Retry.no,
        _USUAL,
    ),
    int(signals.SIGABRT): wording(
        Cause.signal, "", "Native code gave up; what it printed before says why.", Retry.once, _USUAL
    ),
    int(signals.SIGBUS): wording(
        Cause.shm_full, "", "A bus error mostly means that /dev/shm is full.", Retry.no, _USUAL
    ),
}
_OTHER_SIGNAL = wording(
    Cause.signal,
    "",
    "The signal came from outside or from a crash in native code; gpuqueue did not send it.",
    Retry.yes,
)
_BY_STATUS: dict[int, Wording] = {
    124: wording(
        Cause.timeout, "", "Exit status 124 is that of `timeout`: a longer limit.", Retry.no, _USUAL
    ),
    126: wording(Cause.program_error, "", "The command may not be executed: chmod +x.", Retry.no, _USUAL),
    127: wording(
        Cause.missing_module,
        "",
        "The command was not found: activate the right environment.",
        Retry.no,
        _USUAL,
    ),
}


def diagnose(evidence: Evidence) -> Finding:
    """The most likely cause of the end of an attempt. Deterministic, and never raises, whatever the text.

    `Cause.none` means that it went well or that nothing shows why it ended: the confidence tells which.
    """
    lines = lines_of(evidence.log_tail)
    if evidence.stop_reason:
        return stopped_by_us(evidence.stop_reason)
    if evidence.succeeded:
        return _success(lines)
    found = traces(lines)
    clues = _all_clues(lines, found, evidence)
    live = [clue for clue in clues if not _is_past(clue, lines, found, evidence)]
    best = _first_in_order(live)
    if best is None and evidence.failed:
        return _unexplained(lines, found, _first_in_order(clues), evidence)
    if best is None:
        return _nothing(lines)
    return _finding(best, lines, found, evidence)


def _all_clues(lines: tuple[str, ...], found: tuple[Trace, ...], evidence: Evidence) -> list[Clue]:
    said = find_clues(lines, _TABLE)
    explained = {clue.line for clue in said}
    own = [trace for trace in found if not explained.intersection(range(trace.end, trace.message_end + 1))]
    own = [trace for trace in own if not trace.is_wrapper]
    raised = [Clue(_TRACEBACK, trace.end, trace.exception) for trace in own]
    return [*_kernel_clues(lines, evidence), *said, *raised, *_status_clues(len(lines), evidence)]


def _kernel_clues(lines: tuple[str, ...], evidence: Evidence) -> list[Clue]:
    clues: list[Clue] = []
    end = len(lines)
    for event in parse_all((*evidence.kernel_lines, *lines)):
        stranger = event.pid is not None and evidence.own_pids and event.pid not in evidence.own_pids
        if stranger and event.kind is not XidClass.hardware:
            continue  # another job's fault on the same card
        row = {
            XidClass.hardware: _XID_HARDWARE,
            XidClass.contained: _XID_HARDWARE,
            XidClass.application: _XID_APPLICATION,
        }.get(event.kind)
        if row is not None:
            clues.append(Clue(row, end, event.line, _xid_fields(event)))
    for clue in find_clues(evidence.kernel_lines, host.TABLE):
        pid = int(clue.fields.get("pid", "0"))
        ours = pid in evidence.own_pids if evidence.own_pids and pid else _may_be_killed(evidence)
        if ours:
            clues.append(Clue(clue.wording, end, clue.text, clue.fields))
    return clues


def _xid_fields(event: XidEvent) -> dict[str, str]:
    return {"pci": event.pci or "?", "number": str(event.number), "meaning": event.meaning}


def _may_be_killed(evidence: Evidence) -> bool:
    return evidence.died_of_signal == signals.SIGKILL or not evidence.failed


def _status_clues(end: int, evidence: Evidence) -> list[Clue]:
    number = evidence.died_of_signal
    if number is not None:
        total = evidence.host_mem_total_mib
        fields = {"total": f" ({memory.gib(total)} in all)" if total else ""}
        return [Clue(_BY_SIGNAL.get(number, _OTHER_SIGNAL), end, f"ended by {_signal_name(number)}", fields)]
    row = _BY_STATUS.get(evidence.exit_status or 0)
    return [Clue(row, end, f"exit status {evidence.exit_status}")] if row else []


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signals.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _is_past(clue: Clue, lines: tuple[str, ...], found: tuple[Trace, ...], evidence: Evidence) -> bool:
    """True where the run outlived the message, so that it is not why the run ended."""
    if clue.line >= len(lines):
        return False
    if clue.wording.strength is _HINT and not evidence.failed:
        return True
    if was_survived(lines, clue.line) or went_on(lines, clue.line):
        return True
    if clue.wording.cause is Cause.missing_module:
        last = death(found)  # optional imports fail with a traceback and are lived without
        return last is not None and clue.line < chain_start(found, last)
    return False


def _first_in_order(clues: list[Clue]) -> Clue | None:
    for cause, strength in ORDER:
        for clue in clues:
            if clue.wording.cause is cause and clue.wording.strength is strength:
                return _root_of(clue, clues)
    return None


def _root_of(clue: Clue, clues: list[Clue]) -> Clue:
    if clue.wording.cause not in _ECHOES or clue.wording.strength is _HINT:
        return clue
    if clue.wording.cause is Cause.host_out_of_memory and clue.wording.strength is _CERTAIN:
        return clue
    earlier = [other for other in clues if other.wording is _TRACEBACK and other.line < clue.line]
    return earlier[0] if earlier and clue.wording.retry is not Retry.no else clue


def _finding(clue: Clue, lines: tuple[str, ...], found: tuple[Trace, ...], evidence: Evidence) -> Finding:
    phase = clue.wording.phase or phase_at(lines, _place(clue, lines, found))
    row = clue.wording
    if row.cause is Cause.out_of_memory:
        finding = memory.judge(clue, lines, evidence, phase)
    else:
        finding = Finding(row.cause, row.confidence, clue.text, clue.advice, row.retry, phase)
    if row is _TRACEBACK and evidence.failed:
        finding = _with(finding, Confidence.high)
    if not evidence.failed and lines_after(lines, clue.line) > _FAR_FROM_THE_END:
        finding = _with(finding, Confidence.low)
    return finding


def _place(clue: Clue, lines: tuple[str, ...], found: tuple[Trace, ...]) -> int:
    """The line whose surroundings tell the phase: native code prints its message before the traceback."""
    after = [trace for trace in found if clue.line < trace.start <= clue.line + _TRACE_FOLLOWS]
    return after[0].end if after else min(clue.line, len(lines) - 1)


def _with(finding: Finding, confidence: Confidence) -> Finding:
    return Finding(
        finding.cause,
        confidence,
        finding.evidence,
        finding.advice,
        finding.retry,
        finding.phase,
        finding.pids,
    )


def _success(lines: tuple[str, ...]) -> Finding:
    last = death(traces(lines))
    if last is not None and not went_on(lines, last.end) and len(lines) - last.end < 5:
        return Finding(
            Cause.none,
            Confidence.medium,
            last.exception,
            "Exit status 0, though the log ends in a traceback: if the command ends in `| tee`, use `set "
            "-o pipefail`.",
            Retry.no,
        )
    return Finding(
        Cause.none, Confidence.high, "exit status 0", "Nothing to do: the job succeeded.", Retry.no
    )


def _nothing(lines: tuple[str, ...]) -> Finding:
    if said_done(lines):
        return Finding(Cause.none, Confidence.medium, _last(lines), "The log ends well.", Retry.no)
    return Finding(
        Cause.none,
        Confidence.low,
        _last(lines),
        "Nothing in the log shows a failure; with the exit status more can be said (--exit-status).",
        Retry.no,
    )


def _unexplained(
    lines: tuple[str, ...], found: tuple[Trace, ...], survived: Clue | None, evidence: Evidence
) -> Finding:
    """A job that failed, and a log that does not say why."""
    if survived is not None and survived.wording.cause is not Cause.program_error:
        return _with(_finding(survived, lines, found, evidence), Confidence.low)
    return Finding(
        Cause.program_error,
        Confidence.low,
        _last(lines) or f"exit status {evidence.exit_status}",
        f"Exit status {evidence.exit_status}, and the end of the log does not say why.",
        Retry.yes,
        phase_at(lines, len(lines) - 1),
    )


def _last(lines: tuple[str, ...]) -> str:
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
