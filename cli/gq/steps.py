"""How many training steps a log shows, as it grows."""

import re

# One step as programs print it: step 120, global_step=120, step: 12/500. Words such as max_step and "steps" set one.
_STEP = re.compile(r"(?<!\w)(?:global[_ ])?step\b['\"]?\s*[:=#\[]?\s*(\d{1,9})\b", re.IGNORECASE)
# A progress bar of a trainer has no title, or one of these; those of downloads and of data preparation have others.
_BAR = re.compile(r"^(?P<title>[^|]*?):?\s*\d{1,3}%\|[^|]*\|\s*(?P<value>\d{1,9})/\d{1,9} ?\[", re.IGNORECASE)
_TRAINS = re.compile(r"\b(?:epoch|train\w*|steps?|iter\w*)\b", re.IGNORECASE)
_LOSS = re.compile(r"\{'loss':")
_LONGEST = 10_000  # characters of a line that is not ended yet


class StepCount:
    """`steps` is how far the counters rose while they were watched. One number alone may be a setting: a counter
    counts once it has risen. A run that resumes does not start at 0: then its first number is where it starts."""

    def __init__(self, resumes: bool = False) -> None:
        self.steps = 0
        self._resumes = resumes
        self._first: dict[str, int] = {}
        self._losses = 0
        self._rest = ""

    def feed(self, data: bytes) -> None:
        """More of the log. Bars return to the start of their line, which ends a line here."""
        *lines, rest = re.split(r"[\r\n]", self._rest + data.decode("utf-8", "replace"))
        self._rest = rest[-_LONGEST:]
        for line in lines:
            self._line(line)

    def _line(self, line: str) -> None:
        if _LOSS.search(line):
            self._losses += 1
            self.steps = max(self.steps, self._losses)
        if found := _STEP.search(line):
            self._counter("step", int(found[1]))
        if (bar := _BAR.match(line)) and (not bar["title"].strip() or _TRAINS.search(bar["title"])):
            self._counter("bar", int(bar["value"]))

    def _counter(self, name: str, value: int) -> None:
        first = self._first.setdefault(name, value)
        if value > first:
            self.steps = max(self.steps, value - first if self._resumes else value)
