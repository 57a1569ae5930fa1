"""What torchrun says of the ranks that it started: which of them failed first."""

import re
from dataclasses import dataclass

_BLOCK = "Root Cause (first observed failure)"
_BLOCK_LINES = 12
_RANK = re.compile(r"^\s*rank\s*:\s*(\d{1,6})\b")
_EXIT_CODE = re.compile(r"^\s*exitcode\s*:\s*(-?\d{1,6})\b")


@dataclass(frozen=True, slots=True)
class FirstFailure:
    """The rank whose end the launcher saw first, and its exit status, -n where signal n ended it.

    `line` is where the launcher begins to tell of it, with the rank's traceback where it has that.
    """

    line: int
    rank: int | None
    exit_code: int | None

    @property
    def was_killed(self) -> bool:
        """True where a signal ended it, so that no error of its own is to be looked for."""
        return self.exit_code is not None and self.exit_code < 0


def first_failure(lines: tuple[str, ...]) -> FirstFailure | None:
    """The launcher's word on the first failure, None where there is none. Of several restarts the last counts."""
    for number in reversed(range(len(lines))):
        if _BLOCK in lines[number]:
            block = lines[number : number + _BLOCK_LINES]
            return FirstFailure(number, _number(_RANK, block), _number(_EXIT_CODE, block))
    return None


def _number(pattern: re.Pattern[str], block: tuple[str, ...]) -> int | None:
    return next((int(found[1]) for line in block if (found := pattern.match(line))), None)
