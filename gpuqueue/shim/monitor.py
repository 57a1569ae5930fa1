"""The monitor's loop: hears the daemon, keeps the log, looks for checkpoints, stops, and says how it ended.

Level-triggered like the daemon: each round looks at what is and does the difference. Numbers cite README.md.
"""

import json
import math
import os
import select
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

from gpuqueue.shim.containment import Containment
from gpuqueue.shim.ending import Ending, Reaper
from gpuqueue.shim.joblog import JobLog
from gpuqueue.shim.process import wake_daemon
from gpuqueue.shim.progress import CheckpointWatch
from gpuqueue.wire.procfs import Process
from gpuqueue.wire.rundir import (
    EXIT,
    HEARD,
    SAY,
    STOP,
    Exit,
    Heard,
    Spec,
    StopOrder,
    UnreadableRecord,
    read_record,
    write_record,
)
from gpuqueue.wire.units import counted

ROUND_S = 1.0
BUSY_ROUND_S = 0.1  # while the log grows fast
KILLING_ROUND_S = 0.05
CHILDREN_GRACE_S = 10  # for those who outlive the main process (8)
UNKILLABLE_AFTER_S = 5  # what lives so long after SIGKILL is reported (7)

HeardOrOrder = TypeVar("HeardOrOrder", Heard, StopOrder)


class Main(Protocol):
    """The job's main process, one's own child or an orphan."""

    def descriptors(self) -> list[int]: ...

    def ending(self) -> Ending | None: ...


class Monitor:
    """Watches one attempt to its end."""

    def __init__(
        self,
        run_dir: Path,
        spec: Spec,
        main: Main,
        containment: Containment,
        log: JobLog,
        checkpoints: CheckpointWatch,
        reaper: Reaper,
        wake_descriptor: int,
        resumed_from: str | None,
    ) -> None:
        self.run_dir = run_dir
        self.spec = spec
        self.log = log
        self._main = main
        self._containment = containment
        self._checkpoints = checkpoints
        self._reaper = reaper
        self._wake = wake_descriptor
        self._resumed_from = resumed_from
        self._heard = _read(run_dir / HEARD, Heard) or Heard()
        self._order: StopOrder | None = None
        self._unsaid: list[str] = []
        self._kill_at = math.inf
        self._give_up_at = math.inf
        self._killed = False
        self._stopped = False
        self._swept = False
        self._clean_scans = 0

    def run(self) -> None:
        """Returns once exit.json is written."""
        while True:
            ending = self._main.ending()
            self._hear(stoppable=ending is None)
            self.log.upkeep()
            self._checkpoints.step()
            record = self._advance(ending)
            if record is not None:
                self._finish(record)
                return
            self._wait(ending)

    def say(self, *lines: str) -> None:
        self._unsaid += lines
        while self._unsaid and self.log.say(self._unsaid[0]):
            del self._unsaid[0]

    def _hear(self, stoppable: bool) -> None:
        heard = self._heard
        said, sentences = _new_sentences(self.run_dir / SAY, heard.say_bytes)
        self.say(*sentences)
        order = _read(self.run_dir / STOP, StopOrder)
        if order is not None and order != self._order:
            anew = order.asked_at != heard.stop_asked_at
            self._obey(order, anew)
            self._stopped = self._stopped or stoppable or not anew
        self._heard = Heard(say_bytes=said, stop_asked_at=self._order.asked_at if self._order else heard.stop_asked_at)
        if self._heard != heard:
            with suppress(OSError):  # worth a repeated line to an adopter, no more
                write_record(self.run_dir / HEARD, self._heard)

    def _obey(self, order: StopOrder, anew: bool) -> None:
        """7: sentence, signal, grace. One that an earlier monitor has carried out only keeps its deadline."""
        grace_s = float(order.grace_s)
        if anew:
            self.say(order.sentence)
            self._containment.signal(signal_number(order.signal))
        else:
            grace_s = min(max(order.asked_at + grace_s - time.time(), 0.0), grace_s)
        self._order = order
        self._kill_at = min(self._kill_at, time.monotonic() + grace_s)

    def _advance(self, ending: Ending | None) -> Exit | None:
        """7 and 8: the exit record once nothing is left but what survives SIGKILL."""
        now = time.monotonic()
        if now >= self._kill_at:
            self._killed = self._killed or ending is None
            self._give_up_at = min(self._give_up_at, now + UNKILLABLE_AFTER_S)
            self._containment.kill()
        hopeless = now >= self._give_up_at
        if ending is None and not hopeless:
            return None
        left = self._containment.processes()
        self._clean_scans = 0 if left else self._clean_scans + 1
        if hopeless or self._clean_scans >= 2:
            return self._record(ending, left)
        if left and not self._swept:
            self._swept = True
            self._sweep(left)
        return None

    def _sweep(self, left: list[Process]) -> None:
        """8: nobody runs on uncharged. Under a stop order they have its signal and its grace already: where a shell
        dies of the signal at once, the trainer below it still saves."""
        if self._order is None:
            self.say(f"{counted(len(left), 'process')} of the job outlived its main process: stopped now")
            self._containment.signal(signal.SIGTERM)
            self._kill_at = min(self._kill_at, time.monotonic() + CHILDREN_GRACE_S)

    def _record(self, ending: Ending | None, left: list[Process]) -> Exit:
        # One that does not die of SIGKILL has it pending all the same: no other end is possible.
        how = ending or Ending(signal=signal.SIGKILL)
        return Exit(
            exit_status=how.exit_status,
            signal=how.signal,
            lost=how.lost,
            failed_start=how.failed_start,
            lasting=how.lasting,
            stopped=self._stopped,
            killed=self._killed,
            leftover_pids=[process.pid for process in left],
            leftover_start_ticks=[process.start_ticks for process in left],
            ended_at=time.time(),
            resumed_from=self._resumed_from,
            oom_kills=self._containment.oom_kills(),
        )

    def _finish(self, record: Exit) -> None:
        if not record.failed_start:
            self._checkpoints.look_once_more()
        self.log.release()  # first: on a full disk this is the room for the record
        self._containment.remove()
        write_exit(self.run_dir, record)
        self._reaper.reap_all()

    def _wait(self, ending: Ending | None) -> None:
        timeout_s = KILLING_ROUND_S if ending is not None else BUSY_ROUND_S if self.log.grows_fast else ROUND_S
        if self._kill_at < math.inf:
            timeout_s = min(timeout_s, max(self._kill_at - time.monotonic(), KILLING_ROUND_S))
        watched = [self._wake, *self._checkpoints.descriptors()]
        if ending is None:
            watched += self._main.descriptors()
        ready, _, _ = select.select(watched, [], [], timeout_s)
        if self._wake in ready and signal.SIGUSR1 in os.read(self._wake, 4096):
            self._checkpoints.look_soon()


def signal_number(name: str) -> int:
    """SIGTERM, TERM or 15; what is no signal counts as SIGTERM."""
    if name.isdecimal() and int(name) in signal.valid_signals():
        return int(name)
    full = name.upper() if name.upper().startswith("SIG") else f"SIG{name.upper()}"
    return signal.Signals.__members__.get(full, signal.SIGTERM)


def write_exit(run_dir: Path, record: Exit) -> None:
    """Until it is on the disk: without it nobody learns that the card is free. Unless the run directory is gone."""
    while run_dir.is_dir():
        try:
            write_record(run_dir / EXIT, record)
            break
        except OSError:
            time.sleep(ROUND_S)
    wake_daemon(run_dir)


def _read(path: Path, kind: type[HeardOrOrder]) -> HeardOrOrder | None:
    """A record that cannot be read is taken up again next round."""
    try:
        return read_record(path, kind)
    except UnreadableRecord:
        return None


def _new_sentences(path: Path, offset: int) -> tuple[int, list[str]]:
    """Whole lines only; a line that is no record is passed over."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            text = file.read()
    except OSError:
        return offset, []
    whole = text[: text.rfind(b"\n") + 1]
    sentences = []
    for line in whole.splitlines():
        with suppress(ValueError, TypeError, KeyError):
            sentences.append(str(json.loads(line)["text"]))
    return offset + len(whole), sentences
