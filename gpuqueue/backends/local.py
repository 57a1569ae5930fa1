"""The local backend: starts shims on this machine, and learns from run directories what became of them.

It keeps nothing that it could not find again: a daemon that starts anew goes on where the last one was killed.
"""

import ctypes
import json
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from gpuqueue.backends import kernel, logs, reports
from gpuqueue.backends.launcher import AUTO, Key, Launcher
from gpuqueue.backends.usage import Usage
from gpuqueue.backends.wakeups import Wakeups
from gpuqueue.core.readings import Probe, ProbeState, ProcessUse
from gpuqueue.wire.errors import ErrorCode, GpuqueueError
from gpuqueue.wire.jobs import TorchPeak
from gpuqueue.wire.procfs import Process, Traces, all_processes, boot_id, find, identify, lives, send_signal
from gpuqueue.wire.rundir import (
    ALIVE,
    CLAIM,
    ERRORS,
    EXIT,
    LOG,
    PROGRESS,
    PROTOCOL,
    SAY,
    SPEC,
    STOP,
    USER_DIR,
    Alive,
    Claim,
    Exit,
    ProcessIdentity,
    Progress,
    Record,
    Spec,
    StopOrder,
    UnreadableRecord,
    create_record,
    read_record,
    reserve,
    write_record,
)

_PR_SET_CHILD_SUBREAPER = 36
_log = logging.getLogger(__name__)


class LocalBackend:
    """Satisfies engine.ports.Backend. `containment` asks for one kind; "auto" takes the best that there is."""

    def __init__(self, state_dir: Path, containment: str = AUTO) -> None:
        self.runs_dir = state_dir.resolve() / "runs"
        self._make_directory(self.runs_dir)
        self._launcher = Launcher(self.runs_dir, containment)
        self.containment = self._launcher.containment
        self.limits_memory = self._launcher.limits_memory
        self._closed: set[Key] = set()  # have an end on disk: not looked at for processes any more
        self._usage = Usage()
        self._wakeups = Wakeups(self.runs_dir)
        # A job whose shim died becomes the daemon's child: its status waits, unreaped, for the adopter.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def start(self, spec: Spec) -> None:
        key = (spec.job_id, spec.attempt)
        run_dir = self._run_dir(*key)
        if self._launcher.is_starting(key):
            return
        try:
            self._make_directory(run_dir)
            self._make_user_directory(run_dir / USER_DIR, spec)
            if not self._may_start(run_dir):
                return
            spec = self._launcher.contained(spec)
            reserve(run_dir / STOP)
            reserve(run_dir / EXIT)
            write_record(run_dir / SPEC, spec)
            self._watch_pid(self._launcher.start(spec, run_dir))
        except (OSError, UnreadableRecord) as error:
            raise GpuqueueError(
                ErrorCode.UNAVAILABLE,
                f"attempt {spec.attempt} of job {spec.job_id} cannot be started: {error}",
                hint=f"see the disk and the process limits of this machine, and {run_dir}",
            ) from error

    def probe(self, job_id: int, attempt: int) -> Probe:
        run_dir = self._run_dir(job_id, attempt)
        try:
            return self._probe((job_id, attempt), run_dir)
        except UnreadableRecord as error:
            return Probe(state=ProbeState.UNKNOWN, why=str(error))
        except OSError as error:
            return Probe(state=ProbeState.UNKNOWN, why=f"{run_dir}: {error}")

    def stop(self, job_id: int, attempt: int, order: StopOrder) -> None:
        """Nothing to do for an attempt that has no run directory: its probe says ABSENT."""
        run_dir = self._run_dir(job_id, attempt)
        if not run_dir.is_dir():
            return
        try:
            before = read_record(run_dir / STOP, StopOrder)
            if before is None or order.asked_at + order.grace_s < before.asked_at + before.grace_s:
                write_record(run_dir / STOP, order)
        except (OSError, UnreadableRecord) as error:
            message = f"the stop order of job {job_id} cannot be written: {error}"
            raise GpuqueueError(ErrorCode.UNAVAILABLE, message) from error
        self._nudge(run_dir)

    def say(self, job_id: int, attempt: int, sentence: str) -> None:
        """A sentence that a full disk does not take is lost; the event log has it too."""
        run_dir = self._run_dir(job_id, attempt)
        line = json.dumps({"text": sentence}).encode() + b"\n"
        try:
            descriptor = os.open(run_dir / SAY, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)
        except OSError as error:
            _log.warning("job %d was not told %r: %s", job_id, sentence, error)
            return
        self._nudge(run_dir)

    def uses(self) -> Mapping[Key, ProcessUse]:
        table = all_processes()
        traces = {key: found for key in self._open_attempts() if (found := self._traces(key)) is not None}
        self._reap(table)
        return self._usage.read(traces, table)

    def set_waker(self, wake: Callable[[], None]) -> None:
        self._wakeups.open(wake)

    def close(self) -> None:
        """Stops listening. Shims and jobs go on."""
        self._wakeups.close()

    def log_path(self, job_id: int, attempt: int) -> str:
        return str(self._run_dir(job_id, attempt) / USER_DIR / LOG)

    def read_log(self, job_id: int, attempt: int, offset: int, limit: int) -> tuple[bytes, int, int]:
        return logs.read_log(self._run_dir(job_id, attempt), offset, limit)

    def kernel_lines(self, since_unix: float) -> tuple[str, ...] | None:
        return kernel.lines(since_unix)

    def torch_peak(self, job_id: int, attempt: int) -> TorchPeak | None:
        return reports.torch_peak(self._run_dir(job_id, attempt))

    def attempts(self) -> list[Key]:
        found = []
        for entry in self.runs_dir.iterdir():
            job_id, _, attempt = entry.name.partition(".")
            if job_id.isdecimal() and attempt.isdecimal():
                found.append((int(job_id), int(attempt)))
        return found

    def remove(self, job_id: int, attempt: int) -> None:
        run_dir = self._run_dir(job_id, attempt)
        probe = self.probe(job_id, attempt)
        if probe.state not in (ProbeState.EXITED, ProbeState.ABSENT) or probe.leftover_pids:
            message = f"attempt {attempt} of job {job_id} has not ended: its run directory stays"
            raise GpuqueueError(ErrorCode.CONFLICT, message)
        self._launcher.remove_cgroup(job_id, attempt)
        # By rm, since a user may have left a tree in there that is deeper than Python recurses.
        subprocess.run(["rm", "-rf", "--one-file-system", "--", str(run_dir)], check=True)
        self._closed.discard((job_id, attempt))

    # Probing

    def _probe(self, key: Key, run_dir: Path) -> Probe:
        ended = _read(run_dir / EXIT, Exit)
        if ended is not None:
            return self._exited(run_dir, ended)
        alive = _read(run_dir / ALIVE, Alive)
        if alive is None:
            return self._probe_unstarted(key, run_dir)
        progress = _read(run_dir / PROGRESS, Progress)
        if alive.job.boot_id != boot_id():
            self._closed.add(key)
            gone = Probe(state=ProbeState.EXITED, lost=True, old_boot=True, resumed_from=alive.resumed_from)
            return _with_progress(gone, progress)
        monitored = lives(alive.shim)
        if monitored:
            self._wakeups.watch(alive.shim)
        else:
            ended = _read(run_dir / EXIT, Exit)  # its last deed, done since the look above
            if ended is not None:
                return self._exited(run_dir, ended)
            self._adopt(run_dir)
        probe = Probe(state=ProbeState.ALIVE, monitored=monitored, resumed_from=alive.resumed_from)
        return _with_progress(probe, progress)

    def _probe_unstarted(self, key: Key, run_dir: Path) -> Probe:
        """No alive.json: the job has not run. ABSENT only when it is certain that it never will."""
        if not (run_dir / SPEC).exists():
            return Probe(state=ProbeState.ABSENT)
        claim = _read(run_dir / CLAIM, Claim)
        if claim is None:
            if self._launcher.is_starting(key):
                return Probe(state=ProbeState.ALIVE, started=False)
            # A shim of an earlier daemon's may still be on its way: take the claim from under it.
            if not create_record(run_dir / CLAIM, Claim(shim=None)):
                return self._probe(key, run_dir)
            return Probe(state=ProbeState.ABSENT, why=_last_line(run_dir / ERRORS))
        if claim.shim is not None and claim.shim.boot_id != boot_id():
            return Probe(state=ProbeState.EXITED, lost=True, old_boot=True)
        if claim.shim is not None and lives(claim.shim):
            self._wakeups.watch(claim.shim)
            return Probe(state=ProbeState.ALIVE, started=False)
        if (run_dir / ALIVE).exists() or (run_dir / EXIT).exists():  # written since the look above
            return self._probe(key, run_dir)
        return Probe(state=ProbeState.ABSENT, why=_last_line(run_dir / ERRORS))

    def _exited(self, run_dir: Path, ended: Exit) -> Probe:
        alive = _read(run_dir / ALIVE, Alive)
        pairs = zip(ended.leftover_pids, ended.leftover_start_ticks, strict=True)
        boot = alive.job.boot_id if alive else boot_id()
        left = [ProcessIdentity(boot_id=boot, pid=pid, start_ticks=ticks) for pid, ticks in pairs]
        probe = Probe(
            state=ProbeState.EXITED,
            exit_status=ended.exit_status,
            signal=ended.signal,
            lost=ended.lost,
            failed_start=ended.failed_start,
            lasting=ended.lasting,
            oom_kills=ended.oom_kills,
            main_pid=alive.job.pid if alive else None,
            stopped=ended.stopped,
            killed=ended.killed,
            leftover_pids=tuple(process.pid for process in left if lives(process)),
            ended_unix=ended.ended_at,
            resumed_from=ended.resumed_from,
        )
        return _with_progress(probe, _read(run_dir / PROGRESS, Progress))

    def _adopt(self, run_dir: Path) -> None:
        spec = _read(run_dir / SPEC, Spec)
        if spec is None:
            raise UnreadableRecord(f"{run_dir / SPEC}: there is none, and the shim died")
        pid = self._launcher.adopt(spec, run_dir)
        if pid is not None:
            _log.warning("the shim of job %d, attempt %d died: another one follows it", spec.job_id, spec.attempt)
            self._watch_pid(pid)

    def _watch_pid(self, pid: int) -> None:
        identity = identify(pid)
        if identity is not None:
            self._wakeups.watch(identity)

    def _may_start(self, run_dir: Path) -> bool:
        if (run_dir / ALIVE).exists() or (run_dir / EXIT).exists():
            return False
        claim = _read(run_dir / CLAIM, Claim)
        if claim is None:
            return True
        if claim.shim is not None and lives(claim.shim):
            return False
        # Its shim died before it wrote alive.json, so nothing ran; or the daemon itself had taken it.
        (run_dir / CLAIM).unlink()
        return not (run_dir / ALIVE).exists()

    # Run directories

    def _run_dir(self, job_id: int, attempt: int) -> Path:
        return self.runs_dir / f"{job_id}.{attempt}"

    @staticmethod
    def _make_directory(path: Path) -> None:
        """Others may pass through to their own `user` directory, and see nothing on the way."""
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o711)

    @staticmethod
    def _make_user_directory(path: Path, spec: Spec) -> None:
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
            path.chmod(0o700)
        if os.geteuid() == 0:
            os.chown(path, spec.uid, spec.gid)

    def _open_attempts(self) -> list[Key]:
        found = self.attempts()
        self._closed |= {key for key in found if key not in self._closed and (self._run_dir(*key) / EXIT).exists()}
        return [key for key in found if key not in self._closed]

    def _traces(self, key: Key) -> Traces | None:
        """None for an attempt that does not run, or whose records cannot be read (its probe says so)."""
        run_dir = self._run_dir(*key)
        try:
            spec, alive = _read(run_dir / SPEC, Spec), _read(run_dir / ALIVE, Alive)
        except UnreadableRecord:
            return None
        if spec is None or alive is None or alive.job.boot_id != boot_id():
            return None
        return Traces(
            marker=spec.marker,
            job=alive.job,
            monitor=alive.shim,
            cgroup=spec.cgroup if alive.containment != "session" else None,
            known=self._usage.known(key),
        )

    def _reap(self, table: Mapping[int, Process]) -> None:
        """What shims left to the daemon: orphans of jobs, helpers, children that never became a job. The main process
        of an attempt is left until exit.json holds its status."""
        shims = self._launcher.pids()
        me, my_session = os.getpid(), os.getsid(0)
        left = [one for one in table.values() if one.dead and one.parent == me and one.session != my_session]
        orphans = {one.pid for one in left} - shims
        if not orphans:
            return
        try:
            # Read after the table: a job that is dead in there had its alive.json before it ran.
            alive = [_read(self._run_dir(*key) / ALIVE, Alive) for key in self._open_attempts()]
        except UnreadableRecord:  # one of them may be its main process
            return
        for pid in orphans - {one.job.pid for one in alive if one is not None}:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def _nudge(self, run_dir: Path) -> None:
        """Tells the monitor to look now; one that is not there looks when it comes."""
        with suppress(UnreadableRecord):
            alive, claim = _read(run_dir / ALIVE, Alive), _read(run_dir / CLAIM, Claim)
            monitor = alive.shim if alive else claim.shim if claim else None
            process = find(monitor) if monitor else None
            if process is not None:
                send_signal(process, signal.SIGUSR1)


def _read(path: Path, kind: type[Record]) -> Record | None:
    record = read_record(path, kind)
    if record is not None and record.protocol > PROTOCOL:
        raise UnreadableRecord(f"{path}: protocol {record.protocol}; this release speaks {PROTOCOL} and older")
    return record


def _with_progress(probe: Probe, progress: Progress | None) -> Probe:
    if progress is None:
        return probe
    return replace(
        probe,
        checkpoint=progress.checkpoint,
        checkpoint_step=progress.step,
        checkpoint_unix=progress.completed_at,
        checkpoint_skipped=tuple(progress.skipped),
    )


def _last_line(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip().rpartition("\n")[2]
    except OSError:
        return ""
