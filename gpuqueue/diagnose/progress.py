"""Whether a run went on after a message: a warning that was survived is not why the run ended."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

# A word that counts, then its number: step 120, epoch=3, 'iteration': 40, 120/5000 [00:31<...
_COUNTED = re.compile(
    r"(?P<word>\b(?:global_?step|steps?|iter(?:ation)?s?|epochs?|batch|update|num_updates|tokens"
    r"|samples))\b['\"]?\s*[:=#\[(]?\s*(?P<value>\d{1,12}(?:\.\d+)?)\b",
    re.IGNORECASE,
)
_BAR = re.compile(r"(?P<value>\d{1,9})/(?P<total>\d{1,9}) ?\[")
_TRACE_FRAME = re.compile(r'^\s*File "|, line \d+|\bTraceback\b|Error\b')

_DONE = re.compile(
    r"\btrain_runtime\b|\btraining (?:is )?(?:now )?(?:complete|completed|finished|done|succeeded)\b"
    r"|\b(?:finished|completed|done) training\b|\ball (?:done|epochs (?:done|completed))\b"
    r"|\b(?:job|run|evaluation|inference|export|script) (?:has )?(?:completed|finished|succeeded)\b"
    r"|HTTP/\d(?:\.\d)?\" 2\d\d\b|\bcompleted successfully\b|\bfinished successfully\b"
    r"|\bexit(?:ed|ing)? (?:with )?(?:code|status)[ :=]*0\b|\bApplication startup complete\b"
    r"|^\s*done[.!]*\s*$|\bmodel (?:was )?saved (?:to|in)\b|\bsuccessfully saved\b"
    r"|^(?!.*\b\d+ (?:failed|errors?)\b).*\b\d+ passed\b",
    re.IGNORECASE,
)
_SURVIVED = re.compile(
    r"\bretrying\b|\bwill (?:try|retry)\b|\btrying again\b|\bskipping\b|\bskipped (?:this |the )?batch"
    r"|\brecovered\b|\bfall(?:ing|s)? ?back\b|\breduc(?:ing|ed) (?:the )?(?:micro.?)?batch"
    r"|\bdecreas(?:ing|ed) (?:the )?batch|\bbatch size (?:reduced|decreased|lowered|halved)|\bhalving\b"
    r"|\bnot a failure\b|\bignoring\b|\bcaught (?:an? )?(?:cuda |gpu )?(?:oom|out.of.memory|exception|error)"
    r"|\bcontinuing\b|\bwill continue\b|\btrying (?:with )?(?:a )?(?:smaller|batch)",
    re.IGNORECASE,
)
_IN_PASSING = re.compile(
    r"^[^:]*\b(?:could not|couldn't|cannot|can't|unable to|failed|failure|caught|skipped|warning)\b[^:]*: ",
    re.IGNORECASE,
)
_NEAR_LINES = 3


def _counters(line: str) -> Iterator[tuple[str, float]]:
    if _TRACE_FRAME.search(line):
        return
    for bar in _BAR.finditer(line):
        yield f"bar of {bar['total']}", float(bar["value"])
    for found in _COUNTED.finditer(line):
        yield found["word"].lower().rstrip("s"), float(found["value"])


@dataclass(frozen=True, slots=True)
class Progress:
    """The last lines on which the run is seen to live; -1 where there is none.

    `risen` is the last on which a counter passed all that it had reached, or the run said that it was done.
    `anew` is the last from which a counter rose again below that, as after a restart from zero.
    """

    risen: int
    anew: int

    def went_on(self, after: int) -> bool:
        """True where the run outlived the line numbered `after`.

        A bar that is merely printed once more when the program dies has not risen.
        """
        return self.risen > after or self.anew > after


def progress_of(lines: tuple[str, ...]) -> Progress:
    """Reads all counters of a log once."""
    reached: dict[str, float] = {}
    latest: dict[str, tuple[int, float]] = {}
    risen = anew = -1
    for number, line in enumerate(lines):
        if _DONE.search(line):
            risen = number
        for key, value in _counters(line):
            if key in reached and value > reached[key]:
                risen = number
            if key in latest and value > latest[key][1]:
                anew = max(anew, latest[key][0])
            reached[key] = max(value, reached.get(key, value))
            latest[key] = (number, value)
    return Progress(risen, anew)


def was_survived(lines: tuple[str, ...], at: int) -> bool:
    """True where the message itself, or what stands right after it, says that the run handles it."""
    near = lines[at : at + 1 + _NEAR_LINES]
    for offset, line in enumerate(near):
        if offset and "Traceback" in line:
            return False
        if _SURVIVED.search(line):
            return True
    return False


def was_told_in_passing(lines: tuple[str, ...], at: int) -> bool:
    """True where the run had said that it was done, and then told in a sentence of its own what it had caught."""
    return bool(_IN_PASSING.match(lines[at])) and said_done(lines[:at])


def said_done(lines: tuple[str, ...]) -> bool:
    """True where one of the last lines reports the end of a run that went well."""
    return any(_DONE.search(line) for line in lines[-20:])


def lines_after(lines: tuple[str, ...], at: int) -> int:
    """How many lines that belong to no traceback follow: a death is near the end of its log."""
    return sum(1 for line in lines[at + 1 :] if line.strip() and not _belongs_to_death(line))


def _belongs_to_death(line: str) -> bool:
    return bool(
        line.startswith((" ", "\t"))
        or _TRACE_FRAME.search(line)
        or re.search(r"error|exit|kill|fail|rank|pid|signal|wandb|nccl|terminat|abort|===|---", line, re.IGNORECASE)
    )
