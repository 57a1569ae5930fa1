"""Starting an attempt: claim it, find its checkpoint, make its process, and only then let it run (contract 1–4)."""

import os
import signal
import time
from pathlib import Path

from gpuqueue.shim import resume
from gpuqueue.shim.containment import Containment
from gpuqueue.shim.ending import OwnChild, Reaper
from gpuqueue.shim.joblog import JobLog
from gpuqueue.shim.launch import Child, environment_of, fork_job
from gpuqueue.shim.monitor import Monitor, signal_number, write_exit
from gpuqueue.shim.owner import CannotStart
from gpuqueue.shim.process import lock, settle, wait_readable, wake_daemon
from gpuqueue.shim.progress import CheckpointWatch
from gpuqueue.wire.procfs import identify
from gpuqueue.wire.rundir import (
    ALIVE,
    CLAIM,
    EXIT,
    PROTOCOL,
    SPEC,
    STOP,
    Alive,
    Claim,
    Exit,
    ProcessIdentity,
    Spec,
    StopOrder,
    create_record,
    read_record,
    write_record,
)

READY_LIMIT_S = 60


class Refused(Exception):
    """This process must not run the attempt; the message says why."""


def run_attempt(run_dir: Path) -> None:
    """The shim's whole life. Its exit status is 0 however the job ended; raises Refused."""
    wake_descriptor = settle()
    spec = _claim(run_dir)
    myself = _identity(os.getpid())
    containment = Containment(spec, myself)
    containment.make_room()
    found = _resume(spec)
    try:
        environment = environment_of(spec, found.checkpoint)
        child = fork_job(run_dir, spec, environment, resume.resume_words(spec, found.checkpoint))
        _until_ready(child)
        job = _identity(child.pid)
        notes = [*spec.notes, *found.notes, *containment.hold(job)]
    except (CannotStart, OSError, ValueError) as error:
        containment.remove()
        status, lasting = getattr(error, "exit_status", 126), getattr(error, "lasting", False)
        write_exit(run_dir, _never_started(str(error), exit_status=status, lasting=lasting))
        return
    order = read_record(run_dir / STOP, StopOrder)
    if order is not None:
        os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)
        containment.remove()
        write_exit(run_dir, _never_started("stopped before it had started", signal=signal_number(order.signal)))
        return
    log = JobLog(child.log, spec.log_cap_bytes)
    alive = Alive(
        shim=myself, job=job, started_at=time.time(), containment=containment.kind, resumed_from=found.checkpoint
    )
    write_record(run_dir / ALIVE, alive)  # 2; where it fails the shim dies of it, and the child leaves
    reaper = Reaper(child.pid)
    checkpoints = CheckpointWatch(run_dir, spec, environment, reaper)
    monitor = Monitor(
        run_dir, spec, OwnChild(child, reaper), containment, log, checkpoints, reaper, wake_descriptor, found.checkpoint
    )
    monitor.say(*notes)
    log.upkeep()
    child.release()
    wake_daemon(run_dir)
    monitor.run()


def _claim(run_dir: Path) -> Spec:
    """3: the specification, if this process may run it."""
    if (run_dir / ALIVE).exists() or (run_dir / EXIT).exists() or not lock(run_dir):
        raise Refused("the attempt was started before")
    if not create_record(run_dir / CLAIM, Claim(shim=_identity(os.getpid()))):
        raise Refused("the attempt is claimed")
    spec = read_record(run_dir / SPEC, Spec)
    if spec is None:
        raise Refused("there is no specification")
    if spec.protocol > PROTOCOL:
        raise Refused(f"the specification speaks protocol {spec.protocol}, this shim {PROTOCOL}")
    return spec


def _resume(spec: Spec) -> resume.Resume:
    if not resume.must_look(spec):
        return resume.without_looking(spec)
    helper = resume.resolve(spec, environment_of(spec, None))
    while (answer := helper.poll()) is None:
        wait_readable([helper.connection.fileno()], 1.0)
    return resume.as_resume(answer, spec)


def _until_ready(child: Child) -> None:
    deadline = time.monotonic() + READY_LIMIT_S
    while not wait_readable([child.connection.fileno()], 1.0):
        if time.monotonic() > deadline:
            os.kill(child.pid, signal.SIGKILL)
            raise CannotStart(f"its process was not ready after {READY_LIMIT_S} s: does a file system hang?")
    child.ready()


def _never_started(
    sentence: str, *, exit_status: int | None = None, signal: int | None = None, lasting: bool = False
) -> Exit:
    return Exit(
        exit_status=exit_status,
        signal=signal,
        lost=False,
        failed_start=sentence,
        lasting=lasting,
        stopped=signal is not None,
        killed=False,
        leftover_pids=[],
        ended_at=time.time(),
    )


def _identity(pid: int) -> ProcessIdentity:
    found = identify(pid)
    if found is None:
        raise CannotStart("its process was killed before it could start")
    return found
