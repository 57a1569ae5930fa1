"""The newest complete checkpoint while the job runs, looked for by helpers that may hang (contract 9)."""

import time
from contextlib import suppress
from pathlib import Path

from gpuqueue.shim import resume
from gpuqueue.shim.ending import Reaper
from gpuqueue.shim.owner import Helper
from gpuqueue.shim.process import wait_readable, wake_daemon
from gpuqueue.wire.rundir import PROGRESS, Progress, Spec, UnreadableRecord, read_record, write_record

EVERY_S = 10
COMMAND_EVERY_S = 60
LAST_LOOK_S = 10


class CheckpointWatch:
    """One helper at a time, and none while an earlier one hangs in the kernel."""

    def __init__(self, run_dir: Path, spec: Spec, environment: dict[str, str], reaper: Reaper) -> None:
        self._path = run_dir / PROGRESS
        self._spec = spec
        self._environment = environment
        self._reaper = reaper
        self._every_s = COMMAND_EVERY_S if spec.checkpoint_command else EVERY_S
        self._look_at = 0.0
        self._helper: Helper | None = None
        self._last: Progress | None = None
        with suppress(UnreadableRecord):
            self._last = read_record(self._path, Progress)

    def descriptors(self) -> list[int]:
        return [] if self._helper is None or self._helper.closed else [self._helper.connection.fileno()]

    def look_soon(self) -> None:
        if not self._spec.checkpoint_command:  # the user's own program is not run on every nudge
            self._look_at = 0.0

    def step(self) -> None:
        """Starts a look that is due, and takes the answer of one that is done."""
        helper = self._helper
        if helper is None:
            if resume.looks_for_checkpoints(self._spec) and time.monotonic() >= self._look_at:
                self._look_at = time.monotonic() + self._every_s
                with suppress(OSError):  # no process to be had: next time
                    self._helper = resume.look(self._spec, self._environment)
            return
        if not helper.closed:
            answer = helper.poll()
            if answer is not None:
                self._keep(resume.as_progress(answer))
        if helper.closed and self._reaper.has_ended(helper.pid):
            self._helper = None

    def look_once_more(self) -> None:
        """What the job saved on its way out belongs to its record. Bounded, hung file system or not."""
        deadline = time.monotonic() + LAST_LOOK_S
        self._until_idle(deadline)
        self._look_at = 0.0
        self.step()
        self._until_idle(deadline)
        if self._helper is not None and not self._helper.closed:
            self._helper.close()

    def _until_idle(self, deadline: float) -> None:
        while self._helper is not None and time.monotonic() < deadline:
            wait_readable(self.descriptors(), 0.05)
            self.step()

    def _keep(self, progress: Progress | None) -> None:
        if progress is None or progress == self._last:
            return
        with suppress(OSError):  # disk full: the next look says it again
            write_record(self._path, progress)
            self._last = progress
            wake_daemon(self._path.parent)
