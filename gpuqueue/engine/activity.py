"""What each running attempt did lately: turns cumulative process use into the samples that idle rules read.

In memory only: a daemon that restarts starts every window again, which is what rule Z5 asks for.
"""

from dataclasses import dataclass, field, replace

from gpuqueue.core.readings import ProcessUse
from gpuqueue.core.snapshot import Activity, Sample

MAX_PIDS = 4096  # of one attempt, the newest; a job may fork without end
MAX_SAMPLES = 240  # a window is judged by sums, so old samples may be merged without changing any sum


@dataclass(slots=True)
class _Record:
    activity: Activity = field(default_factory=Activity)
    last_use: ProcessUse | None = None
    last_at: int = 0
    seen_pids: dict[int, None] = field(default_factory=dict)  # oldest first
    gpu_samples: list[int] = field(default_factory=list)
    gpu_hidden: bool = False
    warnings: dict[str, str] = field(default_factory=dict)  # kind -> the sentence that stands


@dataclass(slots=True)
class ActivityBook:
    """One record per running attempt, keyed by (job id, attempt number)."""

    window_s: int  # the longest window that any rule looks at
    _records: dict[tuple[int, int], _Record] = field(default_factory=dict)

    def forget_all(self) -> None:
        """A gap was not observed: every window starts again. Warnings are given again, too."""
        for record in self._records.values():
            record.activity = replace(Activity(), checkpoint_step=record.activity.checkpoint_step)
            record.warnings.clear()
            record.last_use = None
            record.gpu_samples.clear()

    def keep_only(self, keys: set[tuple[int, int]]) -> None:
        for key in [key for key in self._records if key not in keys]:
            del self._records[key]

    def record(self, key: tuple[int, int], now: int, gpu_permille: int | None, use: ProcessUse | None) -> None:
        """One look at an attempt. A sample is closed once at least a second has passed since the last."""
        record = self._records.setdefault(key, _Record())
        if gpu_permille is None:
            record.gpu_hidden = True
        else:
            record.gpu_samples.append(gpu_permille)
        current = use or ProcessUse(pids=frozenset(), cpu_ms=0, io_bytes=0)
        record.seen_pids |= dict.fromkeys(current.pids)
        for pid in list(record.seen_pids)[:-MAX_PIDS]:
            del record.seen_pids[pid]
        if record.last_use is None:
            record.last_use, record.last_at = current, now
            return
        span_s = now - record.last_at
        if span_s < 1:
            return
        # A process that ended takes its counters with it: a fall counts as no use, never as negative use.
        cpu_ms = max(0, current.cpu_ms - record.last_use.cpu_ms)
        io_bytes = max(0, current.io_bytes - record.last_use.io_bytes)
        gpu = None if record.gpu_hidden else sum(record.gpu_samples) // max(1, len(record.gpu_samples))
        sample = Sample(
            at=now,
            span_s=span_s,
            gpu_permille=gpu,
            cpu_millicores=cpu_ms // span_s,
            io_kib_s=io_bytes // 1024 // span_s,
        )
        record.last_use, record.last_at = current, now
        record.gpu_samples.clear()
        record.gpu_hidden = False
        samples = self._fit((*record.activity.samples, sample), now)
        record.activity = replace(record.activity, samples=samples)

    def checkpoint(self, key: tuple[int, int], now: int, step: int | None) -> bool:
        """True where a newer complete checkpoint appeared than any seen before."""
        record = self._records.setdefault(key, _Record())
        if step is None or step == record.activity.checkpoint_step:
            return False
        record.activity = replace(record.activity, checkpoint_step=step, checkpoint_at=now)
        return True

    def warned(self, key: tuple[int, int], kind: str, level: int, text: str) -> None:
        """A warning was given, or with level 0 withdrawn."""
        record = self._records.setdefault(key, _Record())
        record.warnings.pop(kind, None)
        if level > 0:
            record.warnings[kind] = text
        if kind == "idle":
            record.activity = replace(record.activity, idle_warned=level)
        elif kind == "stalled":
            record.activity = replace(record.activity, stalled_warned=level > 0)
        else:
            record.activity = replace(record.activity, limit_warned=level > 0)

    def warning(self, key: tuple[int, int]) -> tuple[str, str] | None:
        """(kind, sentence) of the newest warning that stands."""
        record = self._records.get(key)
        return None if record is None or not record.warnings else list(record.warnings.items())[-1]

    def of(self, key: tuple[int, int]) -> Activity:
        record = self._records.get(key)
        return record.activity if record is not None else Activity()

    def pids(self, key: tuple[int, int]) -> frozenset[int]:
        """Its processes at the last look."""
        record = self._records.get(key)
        return record.last_use.pids if record is not None and record.last_use is not None else frozenset()

    def seen_pids(self, key: tuple[int, int]) -> frozenset[int]:
        """Its processes at any look: the kernel names dead ones, and who waits for a dead one may wait for long."""
        record = self._records.get(key)
        return frozenset(record.seen_pids) if record is not None else frozenset()

    def _fit(self, samples: tuple[Sample, ...], now: int) -> tuple[Sample, ...]:
        """Drops what is older than the window, and merges the shortest neighbours while there are too many."""
        kept = [sample for sample in samples if sample.at > now - self.window_s]
        while len(kept) > MAX_SAMPLES:
            i = min(range(len(kept) - 1), key=lambda i: (kept[i].span_s + kept[i + 1].span_s, i))
            kept[i : i + 2] = [_merged(kept[i], kept[i + 1])]
        return tuple(kept)


def _merged(a: Sample, b: Sample) -> Sample:
    span_s = a.span_s + b.span_s

    def mean(x: int, y: int) -> int:
        return (x * a.span_s + y * b.span_s) // span_s

    hidden = a.gpu_permille is None or b.gpu_permille is None
    return Sample(
        at=b.at,
        span_s=span_s,
        gpu_permille=None if hidden else mean(a.gpu_permille or 0, b.gpu_permille or 0),
        cpu_millicores=mean(a.cpu_millicores, b.cpu_millicores),
        io_kib_s=mean(a.io_kib_s, b.io_kib_s),
    )
