"""Contract 4 and J1 under root: the job is its owner in everything, and the owner can forge and kill nothing."""

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuqueue.backends.local import LocalBackend
from gpuqueue.core.readings import ProbeState
from gpuqueue.wire.errors import ErrorCode, GpuqueueError
from gpuqueue.wire.rundir import ALIVE, EXIT, PROGRESS, SAY, SPEC, STOP, Spec
from tests.shim.harness import (
    a_spec,
    checkpoint,
    ended,
    eventually,
    gone,
    log,
    log_file,
    log_has,
    order,
    run,
    run_dir,
    running,
)

pytestmark = pytest.mark.root

ANNA, BEN = 61001, 61002  # nobody's on any machine; the kernel asks no account for a uid
GROUPS = [61001, 61500, 61501]


def anna_runs(cwd: Path, *argv: str, **changes: object) -> Spec:
    return a_spec(cwd, *argv, user="anna", uid=ANNA, gid=ANNA, groups=GROUPS, **changes)


def as_user(uid: int, *argv: str, cwd: str = "/") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        argv, user=uid, group=uid, extra_groups=[], cwd=cwd, capture_output=True, text=True, timeout=30
    )


@pytest.fixture
def home(place: Path) -> Path:
    """Anna's alone, 0700. Root may look in all the same; the test that matters takes that away."""
    directory = place / "anna"
    directory.mkdir(mode=0o700)
    os.chown(directory, ANNA, ANNA)
    return directory


def test_4_the_job_has_its_owners_ids_groups_and_nothing_of_roots(backend: LocalBackend, home: Path) -> None:
    spec = anna_runs(home, "sh", "-c", "cat /proc/self/status; touch made; umask", umask=0o077)
    assert run(backend, spec).exit_status == 0
    text = log(backend, spec)
    assert f"Uid:\t{ANNA}\t{ANNA}\t{ANNA}\t{ANNA}" in text
    assert f"Gid:\t{ANNA}\t{ANNA}\t{ANNA}\t{ANNA}" in text
    assert "Groups:\t61001 61500 61501" in text
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert f"{name}:\t0000000000000000" in text
    assert ((home / "made").stat().st_uid, (home / "made").stat().st_mode & 0o777) == (ANNA, 0o600)
    assert (log_file(backend, spec).stat().st_uid, log_file(backend, spec).stat().st_mode & 0o777) == (ANNA, 0o600)


def test_4_what_root_may_not_read_the_owner_may(backend: LocalBackend, place: Path) -> None:
    """The nearest stand-in for a home on a root-squashing export: a daemon and a shim as root, without the two
    capabilities that let root pass over modes."""
    if shutil.which("setpriv") is None:
        pytest.skip("no setpriv: cannot take away root's right to pass over modes")
    home = place / "squashed"
    home.mkdir(mode=0o700)
    checkpoint(home / "checkpoints", 10)
    for path in (home, *home.rglob("*")):
        os.chown(path, ANNA, ANNA)
    spec = anna_runs(
        home,
        "sh",
        "-c",
        "pwd; echo from $GQ_RESUME_FROM",
        first_attempt=False,
        checkpoint_dir=str(home / "checkpoints"),
        checkpoint_since=0.0,
        script=None,
    )
    driver = (
        "import pickle, sys, time\n"
        "from pathlib import Path\n"
        "from gpuqueue.backends.local import LocalBackend\n"
        "backend = LocalBackend(Path(sys.argv[1]), 'session')\n"
        "try: Path(sys.argv[3]).joinpath('x').touch(); sys.exit('root can still write there')\n"
        "except PermissionError: pass\n"
        "backend.start(pickle.loads(bytes.fromhex(sys.argv[2])))\n"
        "while backend.probe(1, 1).state != 'exited': time.sleep(0.05)\n"
        "print(backend.probe(1, 1).exit_status)\n"
    )
    without = "-dac_override,-dac_read_search"
    command = [sys.executable, "-c", driver, str(place / "state"), pickle.dumps(spec).hex(), str(home)]
    done = subprocess.run(
        ["setpriv", f"--bounding-set={without}", f"--inh-caps={without}", *command],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).resolve().parents[2],
    )
    assert done.stdout.strip() == "0", done.stderr + log(backend, spec)
    assert f"{home}\nfrom {home}/checkpoints/checkpoint-10\n" in log(backend, spec)


def test_a_directory_that_the_owner_may_not_enter_is_a_failed_start(backend: LocalBackend, place: Path) -> None:
    closed = place / "bens"
    closed.mkdir(mode=0o700)
    os.chown(closed, BEN, BEN)
    probe = run(backend, anna_runs(closed, "true"))
    assert f"cannot change directory to {closed}: Permission denied" in (probe.failed_start or "")


def test_the_owner_can_forge_no_record(backend: LocalBackend, home: Path) -> None:
    spec = anna_runs(home, "sleep", "60")
    backend.start(spec)
    running(backend, spec)
    directory = run_dir(backend, spec)
    for name in (SPEC, ALIVE, EXIT, PROGRESS, STOP, SAY):
        assert as_user(ANNA, "sh", "-c", f"echo x > {directory}/{name}").returncode != 0
    assert as_user(ANNA, "cat", str(directory / SPEC)).returncode != 0
    assert as_user(ANNA, "ls", str(directory)).returncode != 0
    assert as_user(ANNA, "ls", str(backend.runs_dir)).returncode != 0
    assert as_user(ANNA, "mv", str(directory / "user"), str(directory / "other")).returncode != 0
    assert backend.probe(1, 1).state is ProbeState.ALIVE


def test_the_owner_can_neither_kill_the_monitor_nor_wake_the_daemon(backend: LocalBackend, home: Path) -> None:
    spec = anna_runs(home, "sh", "-c", "kill -9 $PPID; echo killed: $?; sleep 60")
    backend.start(spec)
    alive = running(backend, spec)
    log_has(backend, spec, "killed: 1")
    assert as_user(ANNA, "sh", "-c", f"kill -KILL {alive.shim.pid}").returncode != 0
    assert not gone(alive.shim)


def test_another_user_sees_nothing_of_the_job(backend: LocalBackend, home: Path) -> None:
    spec = anna_runs(home, script="#!/bin/sh\necho secret\nsleep 60\n", script_name="t.sh")
    backend.start(spec)
    log_has(backend, spec, "secret")
    for path in (log_file(backend, spec), run_dir(backend, spec) / "user" / "script"):
        assert as_user(BEN, "cat", str(path)).returncode != 0
        assert as_user(ANNA, "cat", str(path)).returncode == 0
    assert as_user(ANNA, "tail", "-n1", backend.log_path(1, 1)).stdout == "secret\n"


@pytest.mark.parametrize("trick", ["symlink", "hard link", "somebody else's file"])
def test_root_reads_nothing_that_is_not_the_owners(backend: LocalBackend, home: Path, place: Path, trick: str) -> None:
    secret = place / "state" / "secret"
    secret.write_text("of root\n")
    spec = anna_runs(home, "true")
    run(backend, spec)
    file = log_file(backend, spec)
    file.unlink()
    if trick == "symlink":
        file.symlink_to(secret)
    elif trick == "hard link":
        os.link(secret, file)
    else:
        shutil.copy(secret, file)
        os.chown(file, BEN, BEN)
    with pytest.raises(GpuqueueError) as refused:
        backend.read_log(1, 1, 0, 100)
    assert refused.value.code is ErrorCode.NOT_PERMITTED


def test_an_adopter_opens_the_log_as_its_owner(backend: LocalBackend, home: Path, place: Path) -> None:
    """The owner has put a link to root's file in the log's place, and waits for root to write there."""
    secret = place / "state" / "secret"
    secret.write_text("of root\n")
    spec = anna_runs(home, "sh", "-c", "echo ready; sleep 60")
    backend.start(spec)
    alive = running(backend, spec)
    log_has(backend, spec, "ready")
    file = log_file(backend, spec)
    file.unlink()
    file.symlink_to(secret)
    os.kill(alive.shim.pid, 9)
    eventually(lambda: backend.probe(1, 1).monitored and gone(alive.shim))
    backend.say(1, 1, "hello")
    backend.stop(1, 1, order(grace_s=0))
    assert ended(backend, spec).signal in (9, 15)
    assert secret.read_text() == "of root\n"


def test_the_daemon_reaches_a_job_in_a_state_directory_that_others_cannot_list(
    backend: LocalBackend, home: Path
) -> None:
    assert backend.runs_dir.stat().st_mode & 0o777 == 0o711
    spec = anna_runs(home, script="echo reached $0\n", script_name="t")
    assert run(backend, spec).exit_status == 0
    assert "reached" in log(backend, spec)


def test_a_closed_state_directory_says_so(backend: LocalBackend, home: Path, place: Path) -> None:
    (place / "state").chmod(0o700)
    probe = run(backend, anna_runs(home, script="true\n", script_name="t"))
    assert "a directory above it is closed" in (probe.failed_start or "")
