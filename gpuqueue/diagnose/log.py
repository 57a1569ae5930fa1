"""A log tail as lines that patterns can be matched on: no colours, no carriage returns, bounded."""

import re

MAX_LINES = 3000
MAX_LINE_CHARS = 2000

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_BAR = re.compile(r"\d{1,3}%\|.{0,200}?\d{1,9}/\d{1,9} \[|\d{1,9}/\d{1,9} \[[\d:]+[<,]")
_RANK = re.compile(r"^\s{0,9}\[(?:rank|default) ?(\d{1,6})\]:")
_STREAM = re.compile(r"^\s{0,9}(?:\[(?:rank|default) ?\d{1,6}\]:|\([\w./-]+ pid=\d+[^)]*\)|\d{1,6}:(?=\s))")
# What launchers, loggers and notebooks put before a program's own text.
_PREFIX = re.compile(
    r"""^(?:[ \t]{0,9}(?:
        \[?\s*(?:default|rank|node|worker|gpu)[-_ ]?\d*\]?[:\]]      # [rank0]:  [default3]:
      | \[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[^\s|\]]*(?:\ UTC)?\]?\s*[|:-]?   # 2026-01-02 03:04:05,678
      | \[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?
      | \(?[\w./-]+\ pid=\d+[^)]*\)                                   # (EngineCore_0 pid=12)
      | \[\d+,\d+\](?:<std\w+>)?:?                                    # mpirun
      | \d+:(?=\s)                                                    # srun -l
      | (?:[\w.-]+\s*\|\s)                                            # compose service  |
      | \[?(?:ERROR|CRITICAL|FATAL|WARNING|INFO|E|F|W)\]?[:\s|-](?:\s*\d\d-\d\d\ \d\d:\d\d:\d\d)?
      | [|]\s
      | \[[\w.]+(?:\.py|\.cc|\.cpp|\.cu):\d+\]
      | [EFWI]\d{4}\ [\d:.]+\s+\d+\s+\S+:\d+\]                        # glog
      | E\s{2,9}                                                       # pytest
    )\s?)+""",
    re.VERBOSE,
)


def lines_of(text: str) -> tuple[str, ...]:
    """The last lines of a log, oldest first.

    A carriage return ends a line as a newline does, so that what a progress bar overwrote stays readable;
    of the states of one bar only the last is kept.
    """
    kept: list[str] = []
    for line in _ESCAPE.sub("", text).replace("\r\n", "\n").split("\n"):
        states = [state for state in line.split("\r") if state.strip()]
        for index, state in enumerate(states):
            last = index == len(states) - 1
            if last or not (_BAR.search(state) and _BAR.search(states[index + 1])):
                kept.append(_printable(state))
        if not states:
            kept.append("")
    return tuple(kept[-MAX_LINES:])


def _printable(line: str) -> str:
    if len(line) > MAX_LINE_CHARS:
        half = MAX_LINE_CHARS // 2
        line = f"{line[:half]} … {line[-half:]}"
    return line.replace("\x00", "").rstrip()


def without_prefix(line: str) -> str:
    """The line less ranks, time stamps, levels and the like; indentation that the program made is kept."""
    found = _PREFIX.match(line)
    return line[found.end() :] if found else line


def prefix_of(line: str) -> str:
    """What `without_prefix` takes away, less the spaces around it."""
    return line.removesuffix(without_prefix(line)).strip()


def stream_of(line: str) -> str:
    """Whose line it is among several processes that share a log: the label in front of it, "" without one."""
    found = _STREAM.match(line)
    return found[0].strip() if found else ""


def rank_of(line: str) -> int | None:
    """The rank that a launcher put before the line."""
    found = _RANK.match(line)
    return int(found[1]) if found else None
