"""Clues from outside the program's own words: the kernel log, the signal, the exit status.

They stand on the line after the log's last: no run outlives them.
"""

import re
import signal as signals
from dataclasses import replace

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
_OOM_KILLS = wording(
    Cause.host_out_of_memory,
    "",
    "The kernel killed {kills} of the job's processes for want of memory{limit}. " + host.LESS,
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
_KILLED_BY_SOMEBODY = wording(
    Cause.signal,
    "",
    "SIGKILL came neither from gpuqueue nor from the kernel for want of memory, which would have noted it: somebody "
    "sent it, or a daemon that watches memory (systemd-oomd, earlyoom).",
    Retry.yes,
    _USUAL,
)
_OTHER_SIGNAL = wording(
    Cause.signal,
    "",
    "The signal came from outside or from a crash in native code; gpuqueue did not send it.",
    Retry.yes,
)
NOT_FOUND = 127  # the exit status of a shell for a command that is not there
NOT_EXECUTABLE = 126  # and for one that is there and does not run
_SHELL = r"\S+: (?:line )?\d+: (?P<module>[\w./+-]+): "
_FILE = r"\S+: (?:(?:line )?\d+: )?(?P<file>[^\s:'\"‘’]+): "
# What a shell's last line means together with one of those statuses, which is surer than either.
_SHELL_SAYS = (
    (
        NOT_FOUND,
        re.compile(rf"{_FILE}(?:No such file or directory|cannot execute: required file not found)$"),
        program.NO_SUCH_FILE,
    ),
    (NOT_FOUND, re.compile(rf"(?=\S+: (?:line )?\d+: \S*/){_FILE}not found$"), program.NO_SUCH_FILE),
    # dash says this of a command that is nowhere when one directory of the PATH may not be entered.
    (NOT_FOUND, re.compile(rf"{_SHELL}Permission denied$"), program.NOT_ON_PATH),
    (NOT_EXECUTABLE, re.compile(rf"{_FILE}(?:Permission denied|Is a directory)$"), program.MAY_NOT_RUN),
    (NOT_EXECUTABLE, re.compile(rf"{_FILE}(?:cannot execute\b.*|Exec format error)$"), program.NO_PROGRAM),
)
_BY_STATUS: dict[int, Wording] = {
    124: wording(Cause.timeout, "", "Exit status 124 is that of `timeout`: a longer limit.", Retry.no, _USUAL),
    NOT_EXECUTABLE: wording(Cause.program_error, "", "The command may not be executed: chmod +x.", Retry.no, _USUAL),
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
    logged = evidence.kernel_lines or ()
    for event in parse_all((*logged, *lines)):
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
    if evidence.oom_kills:
        limit = evidence.mem_limit_mib
        fields = {"kills": str(evidence.oom_kills), "limit": f" (its --mem is {gib(limit)})" if limit else ""}
        clues.append(Clue(_OOM_KILLS, end, f"memory.events of the job's cgroup: oom_kill {evidence.oom_kills}", fields))
    for clue in find_clues(logged, host.TABLE):
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


def not_by_the_kernel(clue: Clue, evidence: Evidence) -> Clue:
    """What a SIGKILL usually means is not what it means here where the kernel would have counted or logged its kill."""
    if clue.wording is not _BY_SIGNAL[signals.SIGKILL] and clue.wording.advice != host.KILLED:
        return clue
    if evidence.oom_kills is None:
        denied = evidence.kernel_lines is not None and not find_clues(evidence.kernel_lines, host.TABLE)
    else:
        denied = evidence.oom_kills == 0
    return replace(clue, wording=_KILLED_BY_SOMEBODY) if denied else clue


def status_clues(lines: tuple[str, ...], evidence: Evidence) -> list[Clue]:
    """What signal or exit status say by themselves."""
    end = len(lines)
    number = evidence.died_of_signal
    if number is not None:
        total = evidence.host_mem_total_mib
        fields = {"total": f" ({gib(total)} in all)" if total else ""}
        return [Clue(_BY_SIGNAL.get(number, _OTHER_SIGNAL), end, f"ended by {_signal_name(number)}", fields)]
    last = max((number for number, line in enumerate(lines) if line), default=0)
    for status, pattern, meaning in _SHELL_SAYS:
        if evidence.exit_status == status and lines and (said := pattern.match(lines[last])):
            return [Clue(meaning, last, lines[last].strip(), said.groupdict())]
    row = _BY_STATUS.get(evidence.exit_status or 0)
    return [Clue(row, end, f"exit status {evidence.exit_status}")] if row else []


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signals.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
