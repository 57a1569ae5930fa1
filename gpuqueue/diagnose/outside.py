"""Clues from outside the program's own words: the kernel log, the signal, the exit status.

They stand on the line after the log's last: no run outlives them.
"""

import re
import signal as signals

from gpuqueue.diagnose.clue import Clue, Strength, Wording, find_clues, wording
from gpuqueue.diagnose.finding import Cause, Evidence, Retry, gib
from gpuqueue.diagnose.wordings import host, program
from gpuqueue.diagnose.xid import XidClass, XidEvent, parse_all

_USUAL = Strength.usual

_XID_APPLICATION = wording(
    Cause.illegal_access,
    "",
    "The driver stopped the program ({meaning}, Xid {number}): a bug of the program or of an extension, "
    "unless it repeats on one card with different jobs.",
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
        "workers, less data in memory, or a larger --mem.",
        Retry.no,
        _USUAL,
    ),
    int(signals.SIGTERM): wording(
        Cause.signal, "", "Somebody or something outside sent it; gpuqueue did not.", Retry.yes, _USUAL
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
NOT_FOUND = 127  # the exit status of a shell for a command that is not there
# dash says this of a command that is nowhere when one directory of the PATH may not be entered.
_REFUSED = re.compile(r"\S+: (?:line )?\d+: (?P<module>[\w./+-]+): Permission denied$")
_BY_STATUS: dict[int, Wording] = {
    124: wording(Cause.timeout, "", "Exit status 124 is that of `timeout`: a longer limit.", Retry.no, _USUAL),
    126: wording(Cause.program_error, "", "The command may not be executed: chmod +x.", Retry.no, _USUAL),
    NOT_FOUND: wording(
        Cause.missing_module,
        "",
        "The command was not found: activate the right environment.",
        Retry.no,
        _USUAL,
    ),
}


def kernel_clues(lines: tuple[str, ...], evidence: Evidence) -> list[Clue]:
    """What the kernel log, and kernel lines within the job's own log, say about this job."""
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
        # The kernel always names whom it killed: a line without a pid is part of a report that has one.
        ours = pid in evidence.own_pids if evidence.own_pids else _may_be_killed(evidence)
        if ours:
            clues.append(Clue(clue.wording, end, clue.text, clue.fields))
    return clues


def _xid_fields(event: XidEvent) -> dict[str, str]:
    return {"pci": event.pci or "of unknown address", "number": str(event.number), "meaning": event.meaning}


def _may_be_killed(evidence: Evidence) -> bool:
    return evidence.died_of_signal == signals.SIGKILL or not evidence.failed


def status_clues(lines: tuple[str, ...], evidence: Evidence) -> list[Clue]:
    """What signal or exit status say by themselves."""
    end = len(lines)
    number = evidence.died_of_signal
    if number is not None:
        total = evidence.host_mem_total_mib
        fields = {"total": f" ({gib(total)} in all)" if total else ""}
        return [Clue(_BY_SIGNAL.get(number, _OTHER_SIGNAL), end, f"ended by {_signal_name(number)}", fields)]
    last = max((number for number, line in enumerate(lines) if line), default=None)
    if evidence.exit_status == NOT_FOUND and last is not None and (refused := _REFUSED.match(lines[last])):
        return [Clue(program.NOT_ON_PATH, last, lines[last], refused.groupdict())]
    row = _BY_STATUS.get(evidence.exit_status or 0)
    return [Clue(row, end, f"exit status {evidence.exit_status}")] if row else []


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signals.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
