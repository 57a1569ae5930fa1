"""How the job's main process ended: from its parent, or by one who only watches it."""

import os
import select
from contextlib import suppress
from dataclasses import dataclass

from gpuqueue.shim import linux
from gpuqueue.shim.launch import Child
from gpuqueue.shim.owner import CannotStart
from gpuqueue.wire.procfs import find
from gpuqueue.wire.rundir import ProcessIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Exactly one of exit_status, signal and lost speaks, as in the exit record."""

    exit_status: int | None = None
    signal: int | None = None
    lost: bool = False
    failed_start: str | None = None
    lasting: bool = False


class Reaper:
    """Waits for the monitor's children: its helpers and the orphans of the job. The main process is only looked at
    and stays unreaped until the end is on disk, so that its status outlives this monitor."""

    def __init__(self, main: int | None = None) -> None:
        self._main = main

    def main_ending(self) -> Ending | None:
        self._reap_others()
        if self._main is None:
            return None
        found = os.waitid(os.P_PID, self._main, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return None
        by_itself = found.si_code == os.CLD_EXITED
        return Ending(exit_status=found.si_status) if by_itself else Ending(signal=found.si_status)

    def has_ended(self, pid: int) -> bool:
        """A helper; asked at most once after it has answered with True."""
        try:
            return os.waitpid(pid, os.WNOHANG)[0] == pid
        except ChildProcessError:  # with the others
            return True

    def reap_all(self) -> None:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def _reap_others(self) -> None:
        """Until the main process has ended: from then on it hides the others, who may wait for `reap_all`."""
        with suppress(ChildProcessError):
            while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if found.si_pid == self._main:
                    return
                os.waitpid(found.si_pid, 0)


class OwnChild:
    """The main process of a shim's own job."""

    def __init__(self, child: Child, reaper: Reaper) -> None:
        self._child = child
        self._reaper = reaper
        self._ending: Ending | None = None

    def descriptors(self) -> list[int]:
        return []  # SIGCHLD wakes

    def ending(self) -> Ending | None:
        if self._ending is None:
            ending = self._reaper.main_ending()
            self._ending = ending and self._explained(ending)
        return self._ending

    def _explained(self, ending: Ending) -> Ending:
        try:
            self._child.started()
        except CannotStart as error:
            return Ending(exit_status=error.exit_status, failed_start=str(error), lasting=error.lasting)
        except OSError as error:
            return Ending(lost=True, failed_start=f"its start could not be followed: {error.strerror}")
        return ending


class Orphan:
    """The main process of a job whose shim died. Its status is known if somebody left it unreaped (the daemon
    does, being a subreaper), or on kernels that keep it for a pidfd; else it is lost. It is lost as well where
    the process was never released (contract 2): it left with a status, but the job did not run."""

    def __init__(self, job: ProcessIdentity) -> None:
        self._job = job
        self._pidfd: int | None = None
        self._ran = False
        self._ending: Ending | None = None
        with suppress(OSError):  # gone already
            self._pidfd = os.pidfd_open(job.pid)
            if find(job) is None:  # opened another one that got its pid
                os.close(self._pidfd)
                self._pidfd = None

    def descriptors(self) -> list[int]:
        return [] if self._pidfd is None else [self._pidfd]

    def ending(self) -> Ending | None:
        if self._ending is None:
            process = find(self._job)
            self._ran = self._ran or (process is not None and process.has_executed)
            if self._pidfd is None:
                self._ending = Ending(lost=True)
            elif select.select([self._pidfd], [], [], 0)[0]:
                self._ending = self._learn(self._pidfd)
        return self._ending

    def _learn(self, pidfd: int) -> Ending:
        zombie = find(self._job)
        if zombie is not None and zombie.dead and _may_read_status(zombie.pid):
            return _as_ending(zombie.wait_status) if zombie.has_executed else Ending(lost=True)
        status = linux.wait_status_of_reaped(pidfd)
        return Ending(lost=True) if status is None or not self._ran else _as_ending(status)


def _may_read_status(pid: int) -> bool:
    """The kernel shows 0 to those who may not see it."""
    try:
        return os.geteuid() == 0 or os.stat(f"/proc/{pid}").st_uid == os.geteuid()  # noqa: PTH116
    except OSError:
        return False


def _as_ending(wait_status: int) -> Ending:
    code = os.waitstatus_to_exitcode(wait_status)
    return Ending(exit_status=code) if code >= 0 else Ending(signal=-code)
