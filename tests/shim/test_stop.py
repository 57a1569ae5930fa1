"""Contract 6–8, Z2 and Z3: a stop reaches every process, spares nobody, and reports what cannot be killed."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuqueue.backends.local import LocalBackend
from gpuqueue.core.readings import ProbeState
from gpuqueue.wire.procfs import identify
from gpuqueue.wire.rundir import ProcessIdentity
from tests.shim.harness import a_spec, ended, eventually, gone, log, log_has, order, run, running

# Each leaves a process behind that writes its pid to the file "escaped" and wants to live on.
ESCAPES = {
    "child": "sh linger &",
    "own session": "setsid sh linger &",
    "double fork": "(setsid sh -c 'sh linger &' &)",
    "empty environment": "env -i /bin/sh linger &",
    "all of it": "(setsid env -i /bin/sh -c '/bin/sh linger &' &)",
    "nohup": "nohup setsid sh linger >/dev/null 2>&1 &",
}


def escaping(cwd: Path, how: str, then: str, *, ignoring: str = "TERM") -> str:
    ignore = f"trap '' {ignoring}; " if ignoring else ""
    (cwd / "linger").write_text(f"{ignore}echo $$ >> escaped; while :; do sleep 0.1; done\n")
    return f"{ESCAPES[how]}\n while [ ! -s escaped ]; do sleep 0.02; done; echo ready; {then}"


def escaped(cwd: Path) -> list[ProcessIdentity]:
    found = [identify(int(pid)) for pid in (cwd / "escaped").read_text().split()]
    return [identity for identity in found if identity is not None]


@pytest.fixture(params=["best", "session"])
def held(request: pytest.FixtureRequest) -> LocalBackend:
    """With the best containment of this machine, and with none but descent, session and marker."""
    name = "backend" if request.param == "best" else "session_backend"
    backend: LocalBackend = request.getfixturevalue(name)
    return backend


def test_stop_says_why_and_signals(backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(cwd, "sh", "-c", "trap 'echo saving; exit 3' USR1; echo ready; while :; do sleep 0.1; done")
    backend.start(spec)
    log_has(backend, spec, "ready")
    backend.stop(1, 1, order(signal="SIGUSR1", sentence="cancelled by anna"))
    probe = ended(backend, spec)
    assert (probe.exit_status, probe.stopped, probe.killed) == (3, True, False)
    text = log(backend, spec)
    assert 0 < text.index("gq: cancelled by anna\n") < text.index("saving")


def test_grace_runs_out_and_everything_is_killed(held: LocalBackend, cwd: Path) -> None:
    spec = a_spec(cwd, "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done")
    held.start(spec)
    log_has(held, spec, "ready")
    begun = time.monotonic()
    held.stop(1, 1, order(grace_s=1))
    probe = ended(held, spec)
    assert time.monotonic() - begun >= 1
    assert (probe.signal, probe.stopped, probe.killed, probe.leftover_pids) == (9, True, True, ())


def test_every_process_of_the_job_gets_the_signal(backend: LocalBackend, cwd: Path) -> None:
    worker = "trap 'echo worker saved; exit' TERM; echo worker ready; while :; do sleep 0.1; done"
    spec = a_spec(cwd, "sh", "-c", f"setsid sh -c \"{worker}\" & trap 'wait; exit 0' TERM; wait; wait")
    backend.start(spec)
    log_has(backend, spec, "worker ready")
    backend.stop(1, 1, order())
    probe = ended(backend, spec)
    assert probe.killed is False
    assert "worker saved" in log(backend, spec)


@pytest.mark.parametrize("how", ESCAPES)
def test_7_whoever_escapes_is_killed(held: LocalBackend, cwd: Path, how: str) -> None:
    spec = a_spec(cwd, "sh", "-c", escaping(cwd, how, "sleep 60"))
    held.start(spec)
    log_has(held, spec, "ready")
    found = escaped(cwd)
    assert found
    assert {process.pid for process in found} <= held.uses()[1, 1].pids
    held.stop(1, 1, order(grace_s=0))
    probe = ended(held, spec)
    assert probe.leftover_pids == ()
    assert gone(*found)


def test_8_nobody_outlives_the_main_process(held: LocalBackend, cwd: Path) -> None:
    spec = a_spec(cwd, "sh", "-c", escaping(cwd, "all of it", "exit 4", ignoring=""))
    held.start(spec)
    log_has(held, spec, "outlived its main process")
    found = escaped(cwd)
    probe = ended(held, spec)
    assert (probe.exit_status, probe.stopped, probe.leftover_pids) == (4, False, ())
    assert gone(*found)


def test_8_not_even_one_that_ignores_the_signal(session_backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(cwd, "sh", "-c", escaping(cwd, "double fork", "exit 4"))
    session_backend.start(spec)
    log_has(session_backend, spec, "ready")
    found = escaped(cwd)
    assert ended(session_backend, spec).exit_status == 4
    assert gone(*found)


def test_a_stopped_process_is_woken_to_obey(backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(
        cwd, "sh", "-c", "trap 'echo saved; exit 0' TERM; echo ready; kill -STOP $$; while :; do sleep 0.1; done"
    )
    backend.start(spec)
    log_has(backend, spec, "ready")
    backend.stop(1, 1, order(grace_s=20))
    assert ended(backend, spec, within_s=15).exit_status == 0
    assert "saved" in log(backend, spec)


def test_repeated_orders_are_one_and_a_shorter_grace_wins(backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(cwd, "sh", "-c", "trap 'echo got it' TERM; echo ready; while :; do sleep 0.1; done")
    backend.start(spec)
    log_has(backend, spec, "ready")
    for _ in range(3):
        backend.stop(1, 1, order(grace_s=300, sentence="first"))
    log_has(backend, spec, "got it")
    backend.stop(1, 1, order(grace_s=1, sentence="second"))
    assert ended(backend, spec, within_s=20).killed
    lines = log(backend, spec).splitlines()
    assert lines.count("gq: first") == 1
    assert lines.count("gq: second") == 1


def test_processes_that_hop_from_pid_to_pid_are_caught(held: LocalBackend, cwd: Path) -> None:
    code = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "main = os.getpid()\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    time.sleep(0.005)\n"
        "    if os.fork() and os.getpid() != main: os._exit(0)\n"
        "    if os.getpid() == main: time.sleep(0.2)\n"
    )
    spec = a_spec(cwd, sys.executable, "-I", "-S", "-c", code)
    held.start(spec)
    log_has(held, spec, "ready")
    held.stop(1, 1, order(grace_s=0))
    assert ended(held, spec).leftover_pids == ()


def test_two_attempts_do_not_touch_each_other(session_backend: LocalBackend, cwd: Path) -> None:
    one, other = a_spec(cwd, "sleep", "60"), a_spec(cwd, "sleep", "60", job_id=2)
    session_backend.start(one)
    session_backend.start(other)
    running(session_backend, one)
    alive = running(session_backend, other)
    session_backend.stop(1, 1, order(grace_s=0))
    ended(session_backend, one)
    assert session_backend.probe(2, 1).state is ProbeState.ALIVE
    assert not gone(alive.job, alive.shim)


@pytest.fixture
def freezer() -> Iterator[Path]:
    """A cgroup v1 freezer: what is frozen there does not even die of SIGKILL, like a process that hangs in a driver."""
    mount = Path("/sys/fs/cgroup/freezer")
    if not (mount / "cgroup.procs").exists():
        pytest.skip("no cgroup v1 freezer on this machine: nothing else makes a process that survives SIGKILL")
    directory = mount / f"gq-test-{os.getpid()}"
    directory.mkdir()
    yield directory
    (directory / "freezer.state").write_text("THAWED")
    eventually(lambda: not (directory / "cgroup.procs").read_text())
    directory.rmdir()


@pytest.mark.root
def test_what_survives_sigkill_is_reported_as_long_as_it_does(backend: LocalBackend, cwd: Path, freezer: Path) -> None:
    spec = a_spec(cwd, "sh", "-c", "sleep 100 & echo $! > pid; echo ready; wait")
    backend.start(spec)
    log_has(backend, spec, "ready")
    hung = int((cwd / "pid").read_text())
    (freezer / "cgroup.procs").write_text(str(hung))
    (freezer / "freezer.state").write_text("FROZEN")
    backend.stop(1, 1, order(grace_s=1))
    probe = ended(backend, spec)
    assert probe.leftover_pids == (hung,)
    assert backend.probe(1, 1).leftover_pids == (hung,)
    (freezer / "freezer.state").write_text("THAWED")
    eventually(lambda: backend.probe(1, 1).leftover_pids == ())


@pytest.mark.root
def test_a_main_process_that_survives_sigkill_ends_the_attempt_by_that_signal(
    backend: LocalBackend, cwd: Path, freezer: Path
) -> None:
    spec = a_spec(cwd, "sleep", "100")
    backend.start(spec)
    alive = running(backend, spec)
    (freezer / "cgroup.procs").write_text(str(alive.job.pid))
    (freezer / "freezer.state").write_text("FROZEN")
    backend.stop(1, 1, order(grace_s=0))
    probe = ended(backend, spec)
    assert (probe.signal, probe.killed, probe.leftover_pids) == (9, True, (alive.job.pid,))


def test_ordinary_end_leaves_nothing_behind(backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(cwd, "true")
    run(backend, spec)
    if backend.containment == "cgroup":
        cgroup = backend._launcher.contained(spec).cgroup
        assert cgroup is not None
        assert not Path(cgroup).exists()
    assert backend.uses() == {}
