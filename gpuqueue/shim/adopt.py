"""Following a shim that died: the same duties, but the job is somebody else's child."""

import os
import socket
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from gpuqueue.shim.containment import Containment
from gpuqueue.shim.ending import Orphan, Reaper
from gpuqueue.shim.joblog import JobLog
from gpuqueue.shim.launch import environment_of, open_log
from gpuqueue.shim.monitor import Monitor
from gpuqueue.shim.owner import Helper
from gpuqueue.shim.process import lock, settle, wait_readable, wake_daemon
from gpuqueue.shim.progress import CheckpointWatch
from gpuqueue.shim.start import Refused
from gpuqueue.wire.procfs import boot_id, identify
from gpuqueue.wire.rundir import ALIVE, EXIT, SPEC, USER_DIR, Alive, Spec, read_record, write_record

_OPEN_LIMIT_S = 10


def adopt_attempt(run_dir: Path) -> None:
    wake_descriptor = settle()
    if not lock(run_dir):
        raise Refused("another monitor watches")
    if (run_dir / EXIT).exists():
        raise Refused("the attempt has ended")
    spec, alive = read_record(run_dir / SPEC, Spec), read_record(run_dir / ALIVE, Alive)
    myself = identify(os.getpid())
    if spec is None or alive is None or myself is None or alive.job.boot_id != boot_id():
        raise Refused("there is nothing to adopt")
    main = Orphan(alive.job)
    containment = Containment(spec, myself)
    containment.watch(alive.job)
    log = JobLog(_log_descriptor(run_dir, spec), spec.log_cap_bytes)
    reaper = Reaper()
    environment = environment_of(spec, alive.resumed_from)
    checkpoints = CheckpointWatch(run_dir, spec, environment, reaper)
    monitor = Monitor(run_dir, spec, main, containment, log, checkpoints, reaper, wake_descriptor, alive.resumed_from)
    with suppress(OSError):  # disk full: the lock alone says who watches, and the daemon asks again
        write_record(run_dir / ALIVE, replace(alive, shim=myself, adopted=True))
    wake_daemon(run_dir)
    monitor.say("the monitor of this job died; another one follows it")
    monitor.run()


def _log_descriptor(run_dir: Path, spec: Spec) -> int | None:
    """The log, opened by its owner and handed over; None where the owner cannot any more."""
    user_dir = os.open(run_dir / USER_DIR, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def open_it(connection: socket.socket) -> None:
        socket.send_fds(connection, [b"log"], [open_log(user_dir, os.O_RDWR)])

    helper = Helper(spec, open_it, _OPEN_LIMIT_S)
    os.close(user_dir)
    try:
        if not wait_readable([helper.connection.fileno()], _OPEN_LIMIT_S):
            return None
        _, descriptors, _, _ = socket.recv_fds(helper.connection, 16, 1)
        return descriptors[0] if descriptors else None
    except OSError:
        return None
    finally:
        helper.close()
