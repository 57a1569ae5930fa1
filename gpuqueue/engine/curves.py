"""The VRAM curves of live attempts, in memory: written down with a new peak, every minute, and at the end, so that a
daemon that is killed loses less than a minute of them and no peak."""

from dataclasses import dataclass, field

from gpuqueue.core.curve import Curve, with_sample
from gpuqueue.core.model import Attempt

KEEP_S = 60


@dataclass(slots=True)
class CurveBook:
    """Keyed by (job id, attempt number)."""

    _curves: dict[tuple[int, int], Curve] = field(default_factory=dict)
    _kept_at: dict[tuple[int, int], int] = field(default_factory=dict)

    def of(self, attempt: Attempt) -> Curve:
        """All that is known of the attempt's curve, ended ones included."""
        live = self._curves.get(_key(attempt))
        if live is not None or attempt.peak_mib is None:
            return live or attempt.curve
        return with_sample(attempt.curve, attempt.peak_at_s or 0, attempt.peak_mib)

    def record(self, attempt: Attempt, at_s: int, mib: int) -> None:
        self._curves[_key(attempt)] = with_sample(self.of(attempt), at_s, mib)

    def due(self, attempt: Attempt, at_s: int) -> bool:
        """Whether a minute has passed since its curve was written down."""
        return at_s - self._kept_at.setdefault(_key(attempt), at_s) >= KEEP_S

    def kept(self, attempt: Attempt, at_s: int) -> None:
        self._kept_at[_key(attempt)] = at_s

    def keep_only(self, keys: set[tuple[int, int]]) -> None:
        for book in (self._curves, self._kept_at):
            for key in book.keys() - keys:
                del book[key]


def _key(attempt: Attempt) -> tuple[int, int]:
    return (attempt.job_id, attempt.number)
