"""The engine clock: whole seconds that the daemon has observed, kept over restarts.

It is fed with the monotonic clock and never jumps: a gap longer than `MAX_GAP_S` between two ticks (the daemon
was stopped, the machine slept) counts as unobserved, and no time-based rule may act on it (Z5).
"""

from dataclasses import dataclass

MAX_GAP_S = 60


@dataclass(slots=True)
class EngineClock:
    """`second` is the present engine second."""

    second: int
    _fraction: float = 0.0
    _last: float | None = None

    def advance(self, monotonic: float) -> bool:
        """Moves to this instant. True where a gap before it was not observed: sliding windows start again."""
        last, self._last = self._last, monotonic
        if last is None:
            return True
        elapsed = max(0.0, monotonic - last)
        if elapsed > MAX_GAP_S:
            self.second += 1  # later than before, and nothing more is known
            return True
        self._fraction += elapsed
        whole = int(self._fraction)
        self.second += whole
        self._fraction -= whole
        return False
