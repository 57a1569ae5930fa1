"""Who dies when: the daemon, the shim, both, or the machine. No job is lost, none runs twice, and a status is true
or said to be lost (R6)."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuqueue.backends.local import LocalBackend
from gpuqueue.core.readings import ProbeState
from gpuqueue.wire.procfs import all_processes, find
from gpuqueue.wire.rundir import ALIVE, CLAIM, EXIT, HEARD, SPEC, Alive, Heard, read_record
from tests.shim.harness import (
    a_spec,
    ended,
    eventually,
    gone,
    log,
    log_has,
    order,
    rewrite,
    run,
    run_dir,
    running,
    stop_everything,
)

ROOT = Path(__file__).resolve().parents[2]
# Another process in the daemon's place: it starts one attempt, says so, and waits to be killed.
DAEMON = """
import pickle, sys, time
from pathlib import Path
from gpuqueue.backends.local import LocalBackend
backend = LocalBackend(Path(sys.argv[1]), sys.argv[2])
backend.start(pickle.loads(bytes.fromhex(sys.argv[3])))
print("started", flush=True)
time.sleep(600)
"""


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def adopted(backend: LocalBackend, spec: object, first: Alive) -> Alive:
    """Once another monitor has taken over."""

    def ask() -> Alive | None:
        backend.probe(1, 1)
        alive = read_record(backend.runs_dir / "1.1" / ALIVE, Alive)
        return alive if alive is not None and alive.adopted and alive.shim != first.shim else None

    return eventually(ask)


class OtherDaemon:
    """Starts `spec` from a process of its own, so that it can be killed."""

    def __init__(self, state_dir: Path, containment: str, spec: object) -> None:
        import pickle

        self.process = subprocess.Popen(
            [sys.executable, "-c", DAEMON, str(state_dir), containment, pickle.dumps(spec).hex()],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "started\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def test_daemon_killed_the_job_goes_on_and_its_status_is_found(place: Path, cwd: Path) -> None:
    spec = a_spec(cwd, "sh", "-c", "echo ran >> runs; while [ ! -e go ]; do sleep 0.05; done; exit 9")
    daemon = OtherDaemon(place / "state", "session", spec)
    eventually(lambda: (cwd / "runs").exists())
    daemon.kill()
    backend = LocalBackend(place / "state", "session")
    assert backend.probe(1, 1).state is ProbeState.ALIVE
    backend.start(spec)  # an interrupted start is repeated
    (cwd / "go").touch()
    probe = ended(backend, spec)
    assert (probe.exit_status, probe.lost) == (9, False)
    assert (cwd / "runs").read_text() == "ran\n"


def test_daemon_killed_right_after_the_launch_runs_once_or_not_at_all(place: Path, cwd: Path) -> None:
    spec = a_spec(cwd, "sh", "-c", "echo ran >> runs")
    OtherDaemon(place / "state", "session", spec).kill()
    backend = LocalBackend(place / "state", "session")
    if backend.probe(1, 1).state is ProbeState.ABSENT:
        time.sleep(0.5)  # a shim that comes late finds the claim taken
        assert not (cwd / "runs").exists()
        backend.start(spec)
    assert ended(backend, spec).exit_status == 0
    assert (cwd / "runs").read_text() == "ran\n"


@pytest.mark.parametrize("how", ["exit 5", "kill -SEGV $$"])
def test_shim_killed_the_job_lives_and_its_status_is_true(backend: LocalBackend, cwd: Path, how: str) -> None:
    code = f"echo begun; while [ ! -e go ]; do echo tick; sleep 0.05; done; echo done; {how}"
    spec = a_spec(cwd, "sh", "-c", code)
    backend.start(spec)
    first = running(backend, spec)
    log_has(backend, spec, "tick")
    kill(first.shim.pid)
    second = adopted(backend, spec, first)
    assert second.job == first.job
    assert backend.probe(1, 1).monitored
    backend.say(1, 1, "a word from the daemon")
    log_has(backend, spec, "gq: a word from the daemon")
    (cwd / "go").touch()
    probe = ended(backend, spec)
    assert (probe.exit_status, probe.signal) == ((5, None) if how == "exit 5" else (None, 11))
    assert log(backend, spec).endswith("done\n")
    assert backend.uses() == {}
    assert find(first.job) is None  # no zombie stays with the daemon


def test_a_child_that_never_became_a_job_is_no_zombie_of_the_daemons(backend: LocalBackend, cwd: Path) -> None:
    """Its shim, which made it, is gone before it."""
    for job_id in (1, 2):
        assert run(backend, a_spec(cwd / "missing", "true", job_id=job_id)).failed_start

    def zombies() -> list[int]:
        assert backend.uses() == {}
        mine = [one for one in all_processes().values() if one.parent == os.getpid() and one.session != os.getsid(0)]
        return [one.pid for one in mine]

    eventually(lambda: not zombies())


def test_shim_and_job_killed_at_once_the_status_is_still_known(backend: LocalBackend, cwd: Path) -> None:
    """The job is the daemon's child by then, and stays unreaped for the adopter."""
    spec = a_spec(cwd, "sh", "-c", "echo ready; sleep 60")
    backend.start(spec)
    alive = running(backend, spec)
    log_has(backend, spec, "ready")
    kill(alive.shim.pid)
    kill(alive.job.pid)
    probe = ended(backend, spec)
    assert (probe.signal, probe.lost) == (9, False)


def test_shim_killed_again_and_again(backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(cwd, "sh", "-c", "echo ran >> runs; while [ ! -e go ]; do sleep 0.05; done; exit 6")
    backend.start(spec)
    alive = running(backend, spec)
    eventually(lambda: (cwd / "runs").exists())
    for _ in range(2):
        kill(alive.shim.pid)
        alive = adopted(backend, spec, alive)
    (cwd / "go").touch()
    assert ended(backend, spec).exit_status == 6
    assert (cwd / "runs").read_text() == "ran\n"


def test_an_adopter_carries_a_stop_to_its_end(backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(cwd, "sh", "-c", "trap 'echo got it' TERM; echo ready; while :; do sleep 0.1; done")
    backend.start(spec)
    alive = running(backend, spec)
    log_has(backend, spec, "ready")
    backend.stop(1, 1, order(grace_s=3, sentence="in the way"))
    log_has(backend, spec, "got it")
    # Until this is written an adopter would rather signal twice than not at all.
    eventually(lambda: (heard := read_record(run_dir(backend, spec) / HEARD, Heard)) and heard.stop_asked_at)
    kill(alive.shim.pid)
    probe = ended(backend, spec)
    assert (probe.signal, probe.stopped, probe.killed) == (9, True, True)
    assert log(backend, spec).count("in the way") == 1
    assert log(backend, spec).count("got it") == 1


def test_an_adopter_finds_the_children_that_hid(session_backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(cwd, "sh", "-c", "(setsid sh -c 'sleep 300 &' &); sleep 0.3; echo ready; sleep 300")
    session_backend.start(spec)
    alive = running(session_backend, spec)
    log_has(session_backend, spec, "ready")
    pids = session_backend.uses()[1, 1].pids
    kill(alive.shim.pid)
    adopted(session_backend, spec, alive)
    assert session_backend.uses()[1, 1].pids == pids
    session_backend.stop(1, 1, order(grace_s=0))
    ended(session_backend, spec)
    assert not [pid for pid, process in all_processes().items() if pid in pids and not process.dead]


def test_daemon_and_shim_killed_the_job_lives_and_is_followed(place: Path, cwd: Path) -> None:
    spec = a_spec(cwd, "sh", "-c", "echo ran >> runs; while [ ! -e go ]; do sleep 0.05; done; exit 9")
    daemon = OtherDaemon(place / "state", "session", spec)
    first = eventually(lambda: read_record(place / "state" / "runs" / "1.1" / ALIVE, Alive))
    eventually(lambda: (cwd / "runs").exists())
    daemon.kill()
    kill(first.shim.pid)
    backend = LocalBackend(place / "state", "session")
    adopted(backend, spec, first)
    (cwd / "go").touch()
    probe = ended(backend, spec)
    # Nobody's child any more: only a recent kernel tells a watcher how it ended. Never a wrong answer.
    assert (probe.exit_status, probe.lost) in ((9, False), (None, True))
    assert (cwd / "runs").read_text() == "ran\n"


def test_all_killed_the_status_is_lost_and_said_to_be(place: Path, cwd: Path) -> None:
    spec = a_spec(cwd, "sleep", "300")
    daemon = OtherDaemon(place / "state", "session", spec)
    alive = eventually(lambda: read_record(place / "state" / "runs" / "1.1" / ALIVE, Alive))
    daemon.kill()
    kill(alive.shim.pid)
    kill(alive.job.pid)
    # This process is the subreaper here, in init's place: like init it forgets them.
    for pid in (alive.shim.pid, alive.job.pid):
        eventually(lambda: os.waitpid(pid, 0))  # noqa: B023
    assert find(alive.job) is None
    backend = LocalBackend(place / "state", "session")
    probe = ended(backend, spec)
    assert (probe.exit_status, probe.signal, probe.lost) == (None, None, True)


def test_after_a_reboot_the_attempt_has_ended(backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(cwd, "sleep", "300")
    backend.start(spec)
    alive = running(backend, spec)
    record = run_dir(backend, spec) / ALIVE
    kept = record.read_text()
    old = {"boot_id": "a boot that is over", "pid": alive.job.pid, "start_ticks": alive.job.start_ticks}
    rewrite(record, job=old, shim=old)
    probe = backend.probe(1, 1)
    assert (probe.state, probe.old_boot, probe.lost) == (ProbeState.EXITED, True, True)
    assert not gone(alive.job)  # whoever has that pid now is not ours to touch
    backend.start(spec)
    assert backend.probe(1, 1).old_boot
    record.write_text(kept)


def test_after_a_reboot_in_the_middle_of_a_start_it_has_ended_too(backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(cwd, "true")
    directory = run_dir(backend, spec)
    directory.mkdir()
    (directory / SPEC).write_text("{}")
    (directory / CLAIM).write_text('{"shim": {"boot_id": "over", "pid": 1, "start_ticks": 1}, "protocol": 1}')
    probe = backend.probe(1, 1)
    assert (probe.state, probe.old_boot) == (ProbeState.EXITED, True)
    (directory / SPEC).unlink()


def test_a_reused_pid_is_not_the_shim(backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(cwd, "sh", "-c", "echo ready; sleep 300")
    backend.start(spec)
    alive = running(backend, spec)
    log_has(backend, spec, "ready")
    kill(alive.shim.pid)
    other = subprocess.Popen(["sleep", "300"])
    me = find_identity(other.pid, alive)
    rewrite(run_dir(backend, spec) / ALIVE, shim=me)
    second = adopted(backend, spec, alive)
    assert second.shim.pid != other.pid
    backend.stop(1, 1, order(grace_s=0))
    ended(backend, spec)
    assert other.poll() is None
    other.kill()
    other.wait()


def find_identity(pid: int, alive: Alive) -> dict[str, object]:
    return {"boot_id": alive.shim.boot_id, "pid": pid, "start_ticks": alive.shim.start_ticks}


def test_a_second_adopter_leaves(backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(cwd, "sleep", "300")
    backend.start(spec)
    running(backend, spec)
    directory = run_dir(backend, spec)
    command = [sys.executable, "-m", "gpuqueue.shim", "--adopt", str(directory)]
    rival = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=30)
    assert rival.returncode == 1
    assert "another monitor watches" in rival.stderr
    assert not (directory / EXIT).exists()


@pytest.mark.crash
def test_shims_killed_at_random_moments(place: Path, cwd: Path) -> None:
    backend = LocalBackend(place / "state")
    count = 12
    for number in range(1, count + 1):
        code = f"echo ran >> runs{number}; sleep 0.{number:02}; exit {number}"
        spec = a_spec(cwd, "sh", "-c", code, job_id=number)
        backend.start(spec)
        alive = running(backend, spec)
        time.sleep((number * 37 % 40) / 100)
        if not gone(alive.shim):
            kill(alive.shim.pid)
    for number in range(1, count + 1):
        probe = ended(backend, a_spec(cwd, job_id=number))
        runs = (cwd / f"runs{number}").read_text() if (cwd / f"runs{number}").exists() else ""
        assert (runs, probe.exit_status) in (("ran\n", number), ("", None)), probe
        assert runs or probe.lost
    stop_everything(backend)
