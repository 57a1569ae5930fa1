"""The engine: what the daemon holds between two ticks, and the loop that runs them.

`Engine` is a bag of collaborators plus what may be forgotten at any moment (readings, samples, verdicts); all that
matters is in the store or in run directories. The cycle itself is `tick.py`; verbs of the API are one file each.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from gpuqueue.config.settings import Settings
from gpuqueue.core.decisions import Plan
from gpuqueue.core.readings import NodeReading
from gpuqueue.core.snapshot import Snapshot
from gpuqueue.engine.activity import ActivityBook
from gpuqueue.engine.clock import EngineClock
from gpuqueue.engine.curves import CurveBook
from gpuqueue.engine.ports import Backend, Cards, KnownProcess, Store
from gpuqueue.wire.errors import ErrorCode, GpuqueueError

log = logging.getLogger(__name__)

KEEP_CLOCK_S = 10
ANSWER_WITHIN_S = 5.0
READ_LIMIT_S = 15.0  # a card that fell off the bus can hang the driver; the queue goes on without it


@dataclass(slots=True)
class Engine:
    settings: Settings
    store: Store
    cards: Cards
    backend: Backend
    identify: Callable[[int], KnownProcess | None]  # who a pid is, for strangers
    boot_id: str
    daemon_uid: int
    clock: EngineClock
    activity: ActivityBook
    curves: CurveBook = field(default_factory=CurveBook)
    contexts_mib: Mapping[str, int] = field(default_factory=dict)  # of a bare CUDA context, by card, where measured
    snapshot: Snapshot = field(default_factory=lambda: Snapshot(now=0, cards=(), jobs=()))
    reading: NodeReading = field(default_factory=lambda: NodeReading(cards=(), fault="not read yet"))
    plan: Plan = field(default_factory=Plan)
    ticks: int = 0
    last_measured: float = 0.0
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _pulse: asyncio.Event = field(default_factory=asyncio.Event)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _reading_thread: asyncio.Task[NodeReading] | None = None
    broken: GpuqueueError | None = None  # why the last tick failed, wholly or for one job
    failed_launches: dict[tuple[int, int], str] = field(default_factory=dict)  # why they came to nothing
    _kept_second: int = 0

    # -- the loop ---------------------------------------------------------------------------------------------

    async def run(self, cycle: Callable[["Engine", NodeReading, float], None]) -> None:
        """Ticks for ever: at every wake-up, and at least once a sampling interval. A tick that fails is a bug:
        it is logged with its traceback, and the loop goes on, since jobs must not be left without a supervisor."""
        self.backend.set_waker(self.wake)
        while True:
            self._wake.clear()
            reading = await self._read_cards()
            self.broken = None
            try:
                cycle(self, reading, time.monotonic())
            except GpuqueueError as error:  # the world's fault, for example a full disk: try again
                self.broken = error
                log.error("tick failed: %s", error.message, extra={"action": "tick_failed"})
            except Exception as error:
                self.broken = _bug(f"{type(error).__name__}: {error}")
                log.exception("tick failed", extra={"action": "tick_bug"})
            self.ticks += 1
            pulse, self._pulse = self._pulse, asyncio.Event()
            pulse.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._pause_s())

    def _pause_s(self) -> float:
        """Until the next sample, or until the first back-off ends: nobody waits for a timer longer than needed."""
        due = [job.not_before - self.clock.second for job in self.snapshot.jobs if job.not_before is not None]
        return max(0.05, min([self.settings.sample_s, *due]))

    def keep_clock(self) -> None:
        """Writes the clock down every few seconds: a crash loses no more than that of observed time."""
        if self.clock.second - self._kept_second >= KEEP_CLOCK_S:
            self.store.keep_engine_second(self.clock.second)
            self._kept_second = self.clock.second

    def wake(self) -> None:
        self._wake.set()

    async def next_tick(self) -> None:
        """Returns once a tick has run that saw everything written before this call, or after a few seconds: with a
        driver that hangs, the caller's intent is on disk and is carried out later."""
        seen, deadline = self.ticks, time.monotonic() + ANSWER_WITHIN_S
        self.wake()  # deciding is synchronous, so whichever tick ends next has read the store after our write
        while self.ticks == seen and (left := deadline - time.monotonic()) > 0:
            await self.changed(left)

    async def changed(self, timeout_s: float) -> None:
        """Waits for the end of the coming tick, or for `timeout_s`."""
        pulse = self._pulse
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(pulse.wait(), timeout_s)

    async def _read_cards(self) -> NodeReading:
        """In a thread, since a driver call may block for seconds. While one hangs, the last reading stands with
        the fault said: unknown is not free."""
        if self._reading_thread is None:
            self._reading_thread = asyncio.create_task(asyncio.to_thread(self.cards.read))
        done, _ = await asyncio.wait({self._reading_thread}, timeout=READ_LIMIT_S)
        if not done:
            return NodeReading(cards=self.reading.cards, fault=f"the driver has not answered for {READ_LIMIT_S:.0f} s")
        task, self._reading_thread = self._reading_thread, None
        return task.result()

    @contextlib.contextmanager
    def only_this_job(self, job_id: int) -> Iterator[None]:
        """Around what a tick does for one job: a bug that one job meets must not stop the supervision of the others.
        It is logged, doctor shows it, and the job is looked at again at the next tick. What the world cannot do now
        (a full disk) is everybody's trouble, and ends the tick."""
        try:
            yield
        except GpuqueueError:
            raise
        except Exception as error:
            self.broken = _bug(f"job {job_id}: {type(error).__name__}: {error}")
            log.exception("job %d", job_id, extra={"action": "tick_bug", "job": job_id})

    # -- events -----------------------------------------------------------------------------------------------

    def event(self, kind: str, actor: str, text: str, job_id: int | None = None) -> None:
        """Into the event log (A5). Once it is on disk, the daemon's own log says it too, and whoever follows the
        event log is told that there is more to read."""
        self.store.add_event(kind, actor, text, job_id, int(time.time()))

        def tell() -> None:
            by = "" if actor == "gpuqueued" else f"{actor}: "  # a quota that was set is nothing without who set it
            log.info("%s%s", by, text, extra={"action": kind, "job": job_id, "actor": actor})
            news, self._news = self._news, asyncio.Event()
            news.set()

        self.store.after_commit(tell)

    async def more_events(self, timeout_s: float) -> bool:
        """Waits for the next event, or for `timeout_s`: then False. A follower keeps nothing here but its place in
        the log, so one that reads slowly costs no memory and misses nothing."""
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(self._news.wait(), timeout_s)
        return False

    # -- small questions that several verbs ask ------------------------------------------------------------

    def require_cards(self) -> None:
        if self.snapshot.cards_fault and not self.snapshot.cards:
            raise GpuqueueError(
                ErrorCode.UNAVAILABLE, f"the cards cannot be read: {self.snapshot.cards_fault}", "see `gq doctor`"
            )


def _bug(what: str) -> GpuqueueError:
    return GpuqueueError(ErrorCode.INTERNAL, f"a bug in gpuqueued: {what}", "the daemon's log has the details")
