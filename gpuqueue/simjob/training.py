"""The loop of the stand-in training: steps, saves, and all the ways to end."""

import os
import select
import signal
import time
from types import FrameType

from gpuqueue.simjob import children, layouts
from gpuqueue.simjob.cuda import Cuda
from gpuqueue.simjob.options import Options

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
_SAY_EVERY = 10


class Stopped(Exception):
    """A stop signal came."""


class SimulatedCrash(RuntimeError):
    """What `--crash-at-step` asked for."""


class Training:
    """One run. `run` returns its exit status, or raises what a training script would die of."""

    def __init__(self, options: Options, cuda: Cuda | None) -> None:
        self._options = options
        self._cuda = cuda
        self._step = 0
        self._saved_step: int | None = None
        self._stop: signal.Signals | None = None
        self._busy: list[int] = []
        self._begin = time.monotonic()
        self._wake, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write)

    def run(self) -> int:
        options = self._options
        self._catch_signals()
        self._resume()
        try:
            self._load()
            while not self._done():
                self._crash_if_due()
                if options.idle_after_s is not None and self._age() >= options.idle_after_s:
                    self._idle()
                    break
                self._wait(options.step_s)
                self._step += 1
                self._grow()
                self._after_step()
            self._crash_if_due()
        except Stopped:
            return self._stopped()
        self._say(f"done after step {self._step}")
        return options.exit_code or 0

    def _catch_signals(self) -> None:
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN if self._options.ignore_term else self._on_signal)
        if self._options.ignore_term:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._stop = signal.Signals(number)

    def _resume(self) -> None:
        checkpoint = self._options.resume_from
        if checkpoint is not None:
            self._step = layouts.read_step(checkpoint)
            self._saved_step = self._step
            self._say(f"resumed from {checkpoint} at step {self._step}")

    def _load(self) -> None:
        options = self._options
        self._busy = children.burn(options.cpu_percent) + children.write(options.io_mib_s)
        self._wait(options.load_s)
        if self._cuda is None:
            return
        self._cuda.hold(options.vram_mib, options.gpu_percent)
        cards = ", ".join(f"{card.name} ({card.uuid})" for card in self._cuda.cards)
        self._say(f"holds {options.vram_mib} MiB on {cards}")
        if options.escape_mib is not None:
            children.escape(self._cuda, options.escape_mib)

    def _grow(self) -> None:
        grow = self._options.grow
        if grow is None or self._cuda is None or self._step % grow.steps:
            return
        wanted_mib = self._cuda.held_mib + grow.mib
        if grow.up_to_mib is not None:
            wanted_mib = max(min(wanted_mib, grow.up_to_mib), self._cuda.held_mib)
        if wanted_mib > self._cuda.held_mib:
            self._cuda.hold(wanted_mib, self._options.gpu_percent)

    def _after_step(self) -> None:
        options = self._options
        if self._step % _SAY_EVERY == 0 or self._step == options.steps:
            of = f"/{options.steps}" if options.steps is not None else ""
            self._say(f"step {self._step}{of}")
        if options.save_every is not None and self._step % options.save_every == 0:
            self._save()

    def _save(self) -> None:
        options = self._options
        if options.checkpoint_dir is not None and self._saved_step != self._step:
            path = layouts.save(options.checkpoint_dir, options.layout, self._step, options.save_s)
            self._saved_step = self._step
            self._say(f"saved {path}")

    def _idle(self) -> None:
        """Holds what it holds until its time is over; without a time, until it is stopped."""
        self._say(f"idle from step {self._step} on")
        for pid in self._busy:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        if self._cuda is not None:
            self._cuda.work(0)
        end_s = self._options.seconds
        self._wait(None if end_s is None else max(end_s - self._age(), 0))

    def _crash_if_due(self) -> None:
        options = self._options
        if self._step != options.crash_at_step or (
            options.crash_attempts is not None and options.attempt > options.crash_attempts
        ):
            return
        if options.crash_signal is not None:
            if options.crash_signal in STOP_SIGNALS:
                signal.signal(options.crash_signal, signal.SIG_DFL)
            os.kill(os.getpid(), options.crash_signal)
        raise SimulatedCrash(f"simulated crash at step {self._step}")

    def _stopped(self) -> int:
        assert self._stop is not None
        self._save()
        self._say(f"stopped by {self._stop.name} after step {self._step}")
        code = self._options.stop_exit_code
        return 128 + self._stop if code is None else code

    def _done(self) -> bool:
        options = self._options
        if options.steps is not None and self._step >= options.steps:
            return True
        return options.seconds is not None and self._age() >= options.seconds

    def _age(self) -> float:
        return time.monotonic() - self._begin

    def _wait(self, seconds: float | None) -> None:
        """Raises Stopped as soon as a stop signal has come."""
        end = None if seconds is None else time.monotonic() + seconds
        while self._stop is None:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return
            if select.select([self._wake], [], [], left)[0]:
                os.read(self._wake, 64)
        raise Stopped

    def _say(self, sentence: str) -> None:
        print(sentence, flush=True)  # noqa: T201 — its output is its log
