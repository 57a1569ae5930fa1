"""How a wording is written down, and how it is found in a log: one table row, one pattern."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpuqueue.diagnose.finding import Cause, Confidence, Phase, Retry
from gpuqueue.diagnose.log import without_prefix
from gpuqueue.diagnose.traceback import exception_of


class Strength(StrEnum):
    """How much a wording proves."""

    certain = "certain"  # says it outright
    usual = "usual"  # means it most of the time
    hint = "hint"  # a warning that counts only if the run ended badly and nothing better is there


@dataclass(frozen=True, slots=True)
class Wording:
    """One message that some program prints when it dies of `cause`.

    `advice` may name groups of the pattern in braces. `phase` is set where the message implies it.
    """

    cause: Cause
    pattern: re.Pattern[str]
    advice: str
    retry: Retry
    strength: Strength
    phase: Phase | None = None

    @property
    def confidence(self) -> Confidence:
        """The confidence that the wording alone deserves."""
        return {
            Strength.certain: Confidence.high,
            Strength.usual: Confidence.medium,
            Strength.hint: Confidence.low,
        }[self.strength]


@dataclass(frozen=True, slots=True)
class Clue:
    """A wording met in a log: where, and what its named groups said."""

    wording: Wording
    line: int
    text: str
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def advice(self) -> str:
        """The row's advice with the numbers of this message in it."""
        return self.wording.advice.format_map(_Named(self.fields))


class _Named(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "?"


def wording(
    cause: Cause,
    pattern: str,
    advice: str,
    retry: Retry = Retry.no,
    strength: Strength = Strength.certain,
    phase: Phase | None = None,
) -> Wording:
    """A table row. The pattern is searched in one line less its log prefix, letters in either case."""
    return Wording(cause, re.compile(pattern, re.IGNORECASE), advice, retry, strength, phase)


# A quick look that spares most lines the whole table; every pattern must contain one of these.
_WORTH_READING = re.compile(
    r"error|exception|fail|memory|alloc|oom|kill|signal|space|quota|xid|assert|cuda|nccl|hip|gpu|driver"
    r"|module|nvml|fault|abort|terminat|interrupt|time|limit|not found|no such|denied|dumped|shm|symbol"
    r"|exhausted|status|disk|corrupt|pointer|free\(\)|exit|bus|kernel|device|resource|import|hsa|blocks"
    r"|seq len|version|addr|illegal|hangup|quit|preempt|cancel|open file|can't open",
    re.IGNORECASE,
)

# Prose about an error is not the error: documentation, help texts, comments, quoted examples.
_PROSE_BEFORE = re.compile(
    r"\b(?:if|when|whenever|avoid\w*|you|your|should|might|may|e\.g|example|usually|often|typically"
    r"|prevent\w*|tips?|how to|faq|handles|troubleshoot\w*|instead of|rather than|common|fixed|fixes|known"
    r"|called|means?)\b",
    re.IGNORECASE,
)
_COMMENT = re.compile(r"^\s*(?:#|//|>\s|\*\s|-\s|\"\"\"|\|\s*`|<!--|\d+\.\s)")
_QUOTES = "`'\"“‘«"
_OPENERS = ("(", ":", "=", "[", ",")
# What a run works on may hold any text: rows of a data set, prompts, what a model wrote. A test that was to fail did.
_DATA = re.compile(
    r"^\W*(?:prompt|input|text|question|answer|instruction|sample|example|response|output|generated|content|user"
    r"|assistant|query|document|title|label|completion|target|reference|prediction|row|record|item)s?\b"
    r"[\s\d#()\[\].-]{0,12}[:>]"
    r"|^(?:XFAIL|XPASS|SKIPPED|PASSED)\b",
    re.IGNORECASE,
)
# The text before a quotation that is still open, and whether what stands there is one of an error.
_OPEN_QUOTE = re.compile(r"^(?P<head>.*[:=,(\[{]\s*)(?P<quote>[\"'])(?:(?!(?P=quote)).)*$")
_OF_AN_ERROR = re.compile(
    r"\b\w*(?:err|error|exception|exc|exc_info|msg|message|event|reason|detail|details|cause|log|stderr|traceback"
    r"|failed|failure|raised|got|status|what\(\))\b[\"']?\s*[:=,(\[]\s*$",
    re.IGNORECASE,
)


def is_mention(line: str, start: int) -> bool:
    """True where the text at `start` is talked about, or part of the data, rather than reported."""
    before = line[:start]
    if _COMMENT.match(line) or _DATA.match(before):
        return True
    if exception_of(line) is not None:
        return False  # an exception may give advice before it comes to the point
    if (quoted := _OPEN_QUOTE.match(before)) and not _OF_AN_ERROR.search(quoted["head"]):
        return True
    stripped = before.rstrip(_QUOTES)
    if stripped != before and not stripped.rstrip().endswith(_OPENERS):
        return True
    return bool(_PROSE_BEFORE.search(before))


def find_clues(lines: tuple[str, ...], table: Iterable[Wording]) -> list[Clue]:
    """Every wording of the table met in the lines, in the order of the lines, mentions left out."""
    rows = tuple(table)
    clues: list[Clue] = []
    for number, line in enumerate(lines):
        if not _WORTH_READING.search(line):
            continue
        bare = without_prefix(line)
        for row in rows:
            found = row.pattern.search(bare)
            if found and not is_mention(bare, found.start()):
                named = {key: value for key, value in found.groupdict().items() if value}
                clues.append(Clue(row, number, line.strip(), named))
    return clues
