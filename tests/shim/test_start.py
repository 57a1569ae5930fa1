"""Contract 1–3, J1 and J2: what a job finds when it starts, and that it starts once or not at all."""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gpuqueue.backends.local import LocalBackend
from gpuqueue.core.readings import ProbeState
from gpuqueue.wire.procfs import all_processes, lives
from gpuqueue.wire.rundir import ALIVE, CLAIM, EXIT, SPEC, USER_DIR, Claim, Exit, Spec, read_record, write_record
from tests.shim.harness import a_spec, ended, eventually, log, order, run, run_dir, running

PACKAGE = Path(__file__).resolve().parents[2] / "gpuqueue"


def test_exit_status_and_output_are_the_jobs_own(backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(cwd, "sh", "-c", "echo out; echo err >&2; exit 7")
    probe = run(backend, spec)
    assert (probe.exit_status, probe.signal, probe.lost, probe.failed_start) == (7, None, False, None)
    assert log(backend, spec) == "out\nerr\n"


def test_a_job_that_dies_of_a_signal_says_which(backend: LocalBackend, cwd: Path) -> None:
    probe = run(backend, a_spec(cwd, "sh", "-c", "kill -SEGV $$"))
    assert (probe.exit_status, probe.signal) == (None, 11)


def test_environment_is_the_submitters_and_gpuqueues(backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(
        cwd,
        "sh",
        "-c",
        "env; umask; pwd; ulimit -n",
        job_id=12,
        attempt=3,
        umask=0o027,
        checkpoint_dir=str(cwd / "ck"),
        env={"PATH": os.environ["PATH"], "MINE": "yes"},
    )
    run(backend, spec)
    lines = log(backend, spec).splitlines()
    assert {
        "MINE=yes",
        "GQ_JOB_ID=12",
        "GQ_ATTEMPT=3",
        f"GQ_CHECKPOINT_DIR={cwd}/ck",
        "GQ_RESUME_FROM=",
        "PYTHONUNBUFFERED=1",
        "0027",
        str(cwd),
    } <= set(lines)
    assert not [line for line in lines if line.startswith(("LC_ALL", "PYTEST"))]


def test_pythonunbuffered_of_the_submitter_is_kept(backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(
        cwd, "sh", "-c", 'echo "[$PYTHONUNBUFFERED]"', env={"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": ""}
    )
    run(backend, spec)
    assert log(backend, spec) == "[]\n"


def test_job_has_no_input_a_session_of_its_own_and_ordinary_signals(backend: LocalBackend, cwd: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "print(repr(sys.stdin.read()), os.getsid(0) == os.getpid())\n"
        "print(open('/proc/self/status').read())\n"
        "print('oom', open('/proc/self/oom_score_adj').read())\n"
        "print(sorted(os.listdir('/proc/self/fd')))\n"
    )
    spec = a_spec(cwd, sys.executable, "-I", "-c", code)
    run(backend, spec)
    text = log(backend, spec)
    assert "'' True" in text
    # Python itself ignores SIGPIPE (13) and SIGXFSZ (25) once it runs.
    assert "SigBlk:\t0000000000000000" in text
    # 32 and 33 are the C library's own; a make above us leaves them ignored, and nobody but it can change that.
    ignored = int(text.partition("SigIgn:")[2].split()[0], 16) & ~(0b11 << 31)
    assert ignored == 1 << 12 | 1 << 24
    assert "oom 0" in text
    assert "['0', '1', '2', '3']" in text  # 3 is the listing itself


def test_notes_come_before_the_jobs_first_line(backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(cwd, "echo", "first", notes=["CUDA_VISIBLE_DEVICES=3 of your shell is overridden"])
    run(backend, spec)
    assert log(backend, spec) == "gq: CUDA_VISIBLE_DEVICES=3 of your shell is overridden\nfirst\n"


# -- scripts


@pytest.mark.parametrize(
    ("name", "script", "said"),
    [
        ("t.sh", "echo $0 $1 ${BASH_VERSION:+bash}", "{copy} a b bash"),
        ("t.sh", "#!/bin/sh\necho $0 $1", "{copy} a b"),
        (
            "t",
            "#!/usr/bin/env -S python3 -B\nimport sys; print(sys.argv, sys.flags.dont_write_bytecode)",
            "['{copy}', 'a b'] 1",
        ),
        ("t.py", "import sys; print(sys.argv[1:])", "['a b']"),
    ],
)
def test_script_runs_from_its_copy_through_its_first_line(
    backend: LocalBackend, cwd: Path, name: str, script: str, said: str
) -> None:
    spec = a_spec(cwd, "a b", script=script + "\n", script_name=name)
    probe = run(backend, spec)
    assert log(backend, spec).strip() == said.format(copy=run_dir(backend, spec) / USER_DIR / "script")
    assert probe.exit_status == 0


def test_python_script_finds_the_modules_beside_the_original(backend: LocalBackend, cwd: Path) -> None:
    (cwd / "src").mkdir()
    (cwd / "src" / "neighbour.py").write_text("WORD = 'found'\n")
    spec = a_spec(cwd, script="import neighbour; print(neighbour.WORD)\n", script_name="src/train.py")
    run(backend, spec)
    assert log(backend, spec) == "found\n"


def test_later_changes_to_the_script_change_nothing(backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(cwd, script="#!/bin/sh\nsleep 0.5\necho as submitted\n", script_name="t.sh")
    backend.start(spec)
    running(backend, spec)
    (cwd / "t.sh").write_text("echo changed\n")
    ended(backend, spec)
    assert log(backend, spec) == "as submitted\n"


# -- what cannot start


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"argv": ["no-such-command-at-all"]}, 127, "no-such-command-at-all: no such command"),
        ({"argv": ["/etc/passwd"]}, 126, "cannot run /etc/passwd: Permission denied"),
        ({"argv": []}, 127, "no command"),
        ({"argv": ["true"], "cwd": "/no/such/place"}, 126, "cannot change directory to /no/such/place"),
        ({"script": "#!/no/interpreter\n"}, 127, "/no/interpreter: no such command"),
        ({"script": "#!/bin/sh\r\ntrue\r\n"}, 127, "Windows line ends"),
        ({"script": "pass", "script_name": "t.py", "env": {"PATH": "/nowhere"}}, 127, "no python or python3"),
    ],
)
def test_what_cannot_start_says_why_in_one_sentence(
    backend: LocalBackend, cwd: Path, changes: dict[str, object], status: int, words: str
) -> None:
    probe = run(backend, replace(a_spec(cwd), **changes))  # type: ignore[arg-type]
    assert probe.failed_start is not None
    assert words in probe.failed_start
    assert (probe.exit_status, probe.signal) == (status, None)
    assert probe.lasting == ("cwd" not in changes)  # an automounter may be down


def test_a_start_that_fails_for_want_of_something_that_may_come_back_is_not_lasting(
    backend: LocalBackend, cwd: Path
) -> None:
    """R5: here a program that somebody still writes."""
    shutil.copy("/bin/true", cwd / "written")
    with (cwd / "written").open("ab"):
        probe = run(backend, a_spec(cwd, "./written"))
    assert "cannot run ./written: Text file busy" in (probe.failed_start or "")
    assert not probe.lasting


def test_a_file_without_a_first_line_says_what_it_needs(backend: LocalBackend, cwd: Path) -> None:
    (cwd / "x").write_text("echo hi\n")
    (cwd / "x").chmod(0o755)
    probe = run(backend, a_spec(cwd, "./x"))
    assert "needs a first line such as #!/bin/sh" in (probe.failed_start or "")


def test_stop_before_the_start_is_obeyed(backend: LocalBackend, cwd: Path) -> None:
    """A stop order that comes while the checkpoint is still looked for."""
    spec = a_spec(cwd, "touch", "ran", first_attempt=False, checkpoint_command="sleep 1; echo")
    backend.start(spec)
    backend.stop(1, 1, order())
    probe = ended(backend, spec)
    assert probe.stopped
    assert probe.failed_start
    assert probe.signal == 15
    assert not (cwd / "ran").exists()


# -- once, or not at all


def test_3_of_many_shims_one_runs_the_attempt(backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(cwd, "sh", "-c", "echo ran >> runs; sleep 0.3")
    backend.start(spec)
    directory = run_dir(backend, spec)
    command = [sys.executable, "-m", "gpuqueue.shim", str(directory)]
    rivals = [subprocess.Popen(command, cwd=PACKAGE.parent, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    ended(backend, spec)
    claim = read_record(directory / CLAIM, Claim)
    assert claim is not None
    assert claim.shim is not None  # whose it is, is a race that each of the five may win
    for rival in rivals:
        _, errors = rival.communicate(timeout=30)
        assert rival.returncode == (0 if rival.pid == claim.shim.pid else 1)
        assert ("gpuqueue shim" in errors) == (rival.pid != claim.shim.pid)
    backend.start(spec)
    assert subprocess.run(command, cwd=PACKAGE.parent, stderr=subprocess.PIPE).returncode == 1
    assert (cwd / "runs").read_text() == "ran\n"


def test_start_repeated_while_it_starts_is_one_start(backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(cwd, "sh", "-c", "echo ran >> runs; sleep 0.3")
    for _ in range(5):
        backend.start(spec)
    ended(backend, spec)
    backend.start(spec)
    assert backend.probe(1, 1).state is ProbeState.EXITED
    assert (cwd / "runs").read_text() == "ran\n"


def test_2_killed_at_any_moment_of_its_start_it_ran_once_or_never(backend: LocalBackend, cwd: Path) -> None:
    came_back = 0
    for step in range(16):
        spec = a_spec(cwd, "sh", "-c", f"echo ran >> runs{step}", job_id=step + 1)
        backend.start(spec)
        time.sleep(step * 0.015)
        for process in all_processes().values():
            if process.parent == os.getpid() and process.session == process.pid:
                os.kill(process.pid, signal.SIGKILL)
        state = eventually(lambda: ended_or_absent(backend, spec))  # noqa: B023
        if state is ProbeState.ABSENT:
            assert not (run_dir(backend, spec) / ALIVE).exists()
            assert not (cwd / f"runs{step}").exists()
            backend.start(spec)
            came_back += 1
        probe = ended(backend, spec)
        runs = (cwd / f"runs{step}").read_text() if (cwd / f"runs{step}").exists() else ""
        assert runs == "ran\n" or (runs == "" and probe.lost)
    assert came_back > 0


def ended_or_absent(backend: LocalBackend, spec: Spec) -> ProbeState | None:
    state = backend.probe(spec.job_id, spec.attempt).state
    return None if state is ProbeState.ALIVE else state


def test_absent_is_certain_a_shim_that_comes_late_does_not_run(backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(cwd, "touch", "ran")
    directory = run_dir(backend, spec)
    (directory / USER_DIR).mkdir(parents=True)
    write_record(directory / SPEC, spec)  # the daemon died just before, or just after, it made the process
    assert backend.probe(1, 1).state is ProbeState.ABSENT
    late = subprocess.run(
        [sys.executable, "-m", "gpuqueue.shim", str(directory)], cwd=PACKAGE.parent, stderr=subprocess.PIPE
    )
    assert late.returncode == 1
    assert not (cwd / "ran").exists()
    backend.start(spec)
    assert ended(backend, spec).exit_status == 0
    assert (cwd / "ran").exists()


def test_1_an_upgrade_under_a_running_shim_changes_nothing(place: Path, cwd: Path) -> None:
    shutil.copytree(PACKAGE, place / "old" / "gpuqueue", ignore=shutil.ignore_patterns("__pycache__"))
    (cwd / "ck").mkdir()
    spec = a_spec(
        cwd, "sh", "-c", "sleep 1; mkdir ck/checkpoint-5; exit 3", checkpoint_dir=str(cwd / "ck"), checkpoint_since=0.0
    )
    directory = place / "run"
    (directory / USER_DIR).mkdir(parents=True)
    write_record(directory / SPEC, spec)
    main = place / "old" / "gpuqueue" / "shim" / "__main__.py"
    shim = subprocess.Popen([sys.executable, "-I", "-S", str(main), str(directory)], stderr=subprocess.PIPE)
    eventually(lambda: (directory / ALIVE).exists())
    shutil.rmtree(place / "old")
    _, errors = shim.communicate(timeout=30)
    assert errors == b""
    record = read_record(directory / EXIT, Exit)
    assert record is not None
    assert record.exit_status == 3


def test_the_shim_stays_small(backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(cwd, "sleep", "30")
    backend.start(spec)
    alive = running(backend, spec)
    status = Path(f"/proc/{alive.shim.pid}/status").read_text()
    resident_kib = int(status.partition("VmRSS:")[2].split()[0])
    assert resident_kib < 40 * 1024
    assert lives(alive.job)


def test_unreadable_record_is_unknown_not_absent(backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(cwd, "sleep", "30")
    backend.start(spec)
    running(backend, spec)
    directory = run_dir(backend, spec)
    kept = (directory / ALIVE).read_bytes()
    (directory / ALIVE).write_bytes(kept[:20])
    probe = backend.probe(1, 1)
    assert probe.state is ProbeState.UNKNOWN
    assert ALIVE in probe.why
    (directory / ALIVE).write_bytes(kept)
    assert backend.probe(1, 1).state is ProbeState.ALIVE
    assert (directory / CLAIM).exists()
