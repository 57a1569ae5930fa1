"""Contract 9, R2 and R4: from where an attempt resumes, and what the daemon learns of checkpoints while it runs."""

import time
from pathlib import Path

import pytest

from gpuqueue.backends.local import LocalBackend
from gpuqueue.core.readings import Probe, ProbeState
from tests.shim.harness import a_spec, checkpoint, ended, eventually, log, log_has, order, run, running

SAY_RESUME = ("sh", "-c", 'echo "from [$GQ_RESUME_FROM]" "$@"', "sh")


@pytest.fixture
def directory(cwd: Path) -> Path:
    """One of this job, an older one of it, a half-written one, and one of last week's run."""
    made = cwd / "ck"
    checkpoint(made, 900, age_s=60)
    checkpoint(made, 1000, age_s=30)
    checkpoint(made, 1100, complete=False)
    checkpoint(made, 9000, age_s=7 * 86400)
    return made


def later(cwd: Path, directory: Path, **changes: object):  # type: ignore[no-untyped-def]
    """A second attempt of a job that began an hour ago."""
    values = {"first_attempt": False, "checkpoint_dir": str(directory), "checkpoint_since": time.time() - 3600}
    return a_spec(cwd, *SAY_RESUME, **(values | changes))


def test_the_first_attempt_starts_afresh(backend: LocalBackend, cwd: Path, directory: Path) -> None:
    spec = a_spec(cwd, *SAY_RESUME, checkpoint_dir=str(directory), checkpoint_since=0.0)
    probe = run(backend, spec)
    assert log(backend, spec) == "from []\n"
    assert probe.resumed_from is None


def test_a_later_attempt_resumes_from_the_newest_complete_one(
    backend: LocalBackend, cwd: Path, directory: Path
) -> None:
    spec = later(cwd, directory)
    probe = run(backend, spec)
    text = log(backend, spec)
    assert text.endswith(f"from [{directory}/checkpoint-1000]\n")
    assert probe.resumed_from == f"{directory}/checkpoint-1000"
    skipped = [line for line in text.splitlines() if line.startswith("gq: skipped")]
    assert any("checkpoint-1100" in line for line in skipped)
    assert any("checkpoint-9000" in line for line in skipped)
    assert f"gq: resuming from {directory}/checkpoint-1000" in text


def test_one_from_which_attempts_failed_is_passed_over(backend: LocalBackend, cwd: Path, directory: Path) -> None:
    spec = later(cwd, directory, checkpoint_exclude=[str(directory / "checkpoint-1000")])
    assert run(backend, spec).resumed_from == f"{directory}/checkpoint-900"


def test_resume_argument_is_appended_with_the_checkpoint(backend: LocalBackend, cwd: Path, directory: Path) -> None:
    spec = later(cwd, directory, resume_arg="--resume '{checkpoint}' --from={checkpoint}")
    run(backend, spec)
    newest = f"{directory}/checkpoint-1000"
    assert log(backend, spec).endswith(f"from [{newest}] --resume {newest} --from={newest}\n")


def test_without_a_checkpoint_no_resume_argument(backend: LocalBackend, cwd: Path) -> None:
    spec = later(cwd, cwd / "nothing", resume_arg="--resume {checkpoint}")
    run(backend, spec)
    text = log(backend, spec)
    assert text.endswith("from []\n")
    assert "gq: starting from the beginning" in text


@pytest.mark.parametrize("first", [True, False])
def test_a_given_checkpoint_is_used_until_there_is_an_own_one(backend: LocalBackend, cwd: Path, first: bool) -> None:
    spec = later(cwd, cwd / "empty", first_attempt=first, resume_fallback="/given/one")
    assert run(backend, spec).resumed_from == "/given/one"


def test_resume_latest_takes_an_old_one_too(backend: LocalBackend, cwd: Path, directory: Path) -> None:
    spec = later(cwd, directory, first_attempt=True, resume_latest=True)
    assert run(backend, spec).resumed_from == f"{directory}/checkpoint-9000"


def test_resume_latest_asks_the_command_too(backend: LocalBackend, cwd: Path) -> None:
    old = checkpoint(cwd / "ck", 9000, age_s=7 * 86400)
    spec = later(
        cwd, cwd, checkpoint_dir=None, checkpoint_command=f"echo {old}", first_attempt=True, resume_latest=True
    )
    assert run(backend, spec).resumed_from == str(old)


@pytest.mark.parametrize(
    ("command", "resumed", "said"),
    [
        ("echo noise; echo mine.ckpt", "{cwd}/mine.ckpt", "resuming from"),
        ("echo gone.ckpt", None, "gone.ckpt: No such file"),
        ("exit 3", None, "--checkpoint-command: it ended with status 3"),
        ("true", None, "starting from the beginning"),
    ],
)
def test_checkpoint_command_says_which(
    backend: LocalBackend, cwd: Path, command: str, resumed: str | None, said: str
) -> None:
    (cwd / "mine.ckpt").touch()
    spec = later(cwd, cwd, checkpoint_dir=None, checkpoint_command=command)
    probe = run(backend, spec)
    assert probe.resumed_from == (resumed and resumed.format(cwd=cwd))
    assert said in log(backend, spec)


# -- while it runs


def sees(backend: LocalBackend, step: int) -> Probe:
    def ask() -> Probe | None:
        probe = backend.probe(1, 1)
        return probe if probe.checkpoint_step == step else None

    return eventually(ask)


def test_a_new_checkpoint_is_reported_while_the_job_runs(backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(cwd, "sleep", "60", checkpoint_dir=str(cwd / "ck"), checkpoint_since=time.time() - 1)
    backend.start(spec)
    running(backend, spec)
    checkpoint(cwd / "ck", 50)
    backend.say(1, 1, "look")  # a nudge looks at once; without one it takes up to ten seconds
    probe = sees(backend, 50)
    assert (probe.state, probe.checkpoint) == (ProbeState.ALIVE, f"{cwd}/ck/checkpoint-50")
    assert probe.checkpoint_unix is not None
    assert abs(probe.checkpoint_unix - time.time()) < 60
    checkpoint(cwd / "ck", 60, complete=False)
    backend.say(1, 1, "look")
    eventually(lambda: "checkpoint-60" in " ".join(backend.probe(1, 1).checkpoint_skipped))
    assert backend.probe(1, 1).checkpoint_step == 50


def test_what_it_saves_on_the_stop_signal_is_known_at_its_end(backend: LocalBackend, cwd: Path) -> None:
    checkpoint(cwd / "made", 70)
    code = "trap 'mkdir -p ck; mv made/checkpoint-70 ck; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
    spec = a_spec(cwd, "sh", "-c", code, checkpoint_dir=str(cwd / "ck"), checkpoint_since=time.time() - 60)
    backend.start(spec)
    log_has(backend, spec, "ready")
    backend.stop(1, 1, order())
    assert ended(backend, spec).checkpoint_step == 70


def test_9_a_checkpoint_command_that_hangs_costs_the_job_nothing(backend: LocalBackend, cwd: Path) -> None:
    spec = a_spec(cwd, "sh", "-c", "sleep 0.3; exit 8", checkpoint_command="sleep 100 & wait")
    backend.start(spec)
    assert ended(backend, spec, within_s=45).exit_status == 8
    assert backend.uses() == {}
