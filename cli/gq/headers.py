"""`#GQ` lines at the top of a script: the options it asks for itself (rule J4)."""

import shlex
from typing import NamedTuple

from gq.exits import usage

MARK = "#GQ"


class HeaderLine(NamedTuple):
    number: int
    words: list[str]


def header_lines(text: str, file: str) -> list[HeaderLine]:
    """The words of each `#GQ` line before the script's first line that is neither comment nor blank. Raises
    a usage error that names file and line where quotes are left open."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            break
        if stripped != MARK and not stripped.startswith((f"{MARK} ", f"{MARK}\t")):
            continue
        try:
            found.append(HeaderLine(number, shlex.split(stripped[len(MARK) :], comments=True)))
        except ValueError as error:
            raise usage(f"{file}, line {number}: {error}") from error
    return found
