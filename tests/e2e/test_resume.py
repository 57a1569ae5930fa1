"""A trainer that died goes on from its newest complete checkpoint (R2), one that nobody gets past is passed over (R4),
and what counts as progress is a newer checkpoint of this job (R3)."""

import os
import re
import shlex
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuqueue.simjob import layouts
from tests.e2e.node import SIMJOB, Node

pytestmark = pytest.mark.e2e

WEEK_S = 7 * 86400
TRAINER = shlex.join([*SIMJOB, "--seconds", "1h"])


def node_with(make_node: Callable[..., Node], *, crash_limit: int = 4) -> Node:
    quick = f'[restart]\nbackoff_base = "1s"\nbackoff_max = "1s"\ncrash_limit = {crash_limit}\n'
    return make_node(config=f'[daemon]\nsample = "1s"\n{quick}').start()


def script(node: Node, trainer: str) -> str:
    """A script that says what the queue told it, and becomes the trainer."""
    path = node.work / "train.sh"
    path.write_text(f'echo "from [$GQ_RESUME_FROM], in [$GQ_CHECKPOINT_DIR], given [$*]"\nexec {trainer}\n')
    return str(path)


def last_weeks(node: Node, step: int) -> Path:
    """A complete checkpoint of an earlier run in the same directory."""
    made = layouts.save(node.work / "out", "hf", step, 0)
    then = time.time() - WEEK_S
    for path in (*made.iterdir(), made):
        os.utime(path, (then, then))
    return made


def log(node: Node, job: int, attempt: int) -> str:
    return node.gq("logs", str(job), "--attempt", str(attempt)).stdout


def test_a_killed_trainer_resumes_from_the_newest_complete_checkpoint_of_this_job(
    make_node: Callable[..., Node],
) -> None:
    node = node_with(make_node)
    out = node.work / "out"
    old = last_weeks(node, 9000)
    trainer = f"{TRAINER} --vram 2G --step-seconds 0.001 --save-every 100 --save-seconds 0.5"
    job = node.submit("--vram", "2G", "--checkpoint-dir", "out", script(node, trainer))
    node.until_state(job, "running")
    _until_exists(out / "checkpoint-1100")
    os.kill(node.alive(job)["job"]["pid"], signal.SIGKILL)

    node.until(lambda: node.job(job)["attempt"] == 2, "there is a second attempt")
    # It goes on from there, and its next save replaces the half-written one.
    node.until(lambda: f"saved {out}/checkpoint-1100" in log(node, job, 2), "it saves the next step")
    assert f"from [], in [{out}], given []" in log(node, job, 1)
    assert "saved " + str(out / "checkpoint-1000") in log(node, job, 1)
    assert "saved " + str(out / "checkpoint-1100") not in log(node, job, 1)
    second = log(node, job, 2)
    newest = out / "checkpoint-1000"
    assert f"from [{newest}], in [{out}], given []" in second
    assert f"resumed from {newest} at step 1000" in second
    assert f"gq: resuming from {newest}" in second
    assert f"gq: skipped {old}: older than this job" in second
    assert re.search(rf"gq: skipped {out}/checkpoint-1100: .+", second)
    view = node.job(job)
    assert (view["attempt"], view["restarts"], view["resumed_from"]) == (2, 1, str(newest))
    first, _ = node.show(job)["attempts"]
    assert first["outcome"].startswith("killed by SIGKILL, not by gpuqueue")
    assert (first["exit_code"], first["resumed_from"]) == (137, None)


def _until_exists(path: Path) -> None:
    """Looks more often than `Node.until`: the save that it waits for is soon over."""
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.01)


def test_a_job_that_gets_on_is_no_crash_loop_whatever_lies_in_its_directory(make_node: Callable[..., Node]) -> None:
    """R3: last week's higher step is neither this job's progress nor in the way of it."""
    node = node_with(make_node, crash_limit=2)
    last_weeks(node, 9000)
    trainer = f"{TRAINER} --steps 40 --step-seconds 0.01 --save-every 10 --crash-at-step $((GQ_ATTEMPT * 10 + 5))"
    job = node.submit("--vram", "0", "--checkpoint-dir", "out", script(node, trainer))
    assert node.wait(job) == 0
    assert node.job(job)["attempt"] == 4
    assert node.show(job)["checkpoint"] == str(node.work / "out" / "checkpoint-40")
    assert [attempt["resumed_from"] for attempt in node.show(job)["attempts"]] == [
        None,
        *(str(node.work / "out" / f"checkpoint-{step}") for step in (10, 20, 30)),
    ]


def test_a_checkpoint_that_two_attempts_did_not_get_past_is_passed_over(make_node: Callable[..., Node]) -> None:
    """R4."""
    node = node_with(make_node)
    out = node.work / "out"
    trainer = f"{TRAINER} --steps 40 --step-seconds 0.01 --save-every 10 --crash-at-step 25 --crash-attempts 3"
    job = node.submit("--vram", "0", "--checkpoint-dir", "out", script(node, trainer))
    assert node.wait(job) == 0
    resumed = [attempt["resumed_from"] for attempt in node.show(job)["attempts"]]
    assert resumed == [None, f"{out}/checkpoint-20", f"{out}/checkpoint-20", f"{out}/checkpoint-10"]
    fourth = log(node, job, 4)
    assert f"gq: skipped {out}/checkpoint-20: passed over: attempts that started from it failed" in fourth
    assert f"resumed from {out}/checkpoint-10 at step 10" in fourth


def test_resume_from_a_path_until_there_is_an_own_checkpoint(make_node: Callable[..., Node]) -> None:
    node = node_with(make_node)
    elsewhere = node.work / "elsewhere"
    given = layouts.save(elsewhere, "hf", 500, 0)
    trainer = f"{TRAINER} --steps 520 --step-seconds 0.01 --save-every 510 --crash-at-step $((GQ_ATTEMPT * 8 + 497))"
    options = ["--checkpoint-dir", "out", "--resume", "elsewhere/checkpoint-500", "--resume-arg", "--from {checkpoint}"]
    job = node.submit("--vram", "0", *options, script(node, trainer), "--epochs", "3")
    assert node.wait(job) == 0
    own = node.work / "out" / "checkpoint-510"
    resumed = [attempt["resumed_from"] for attempt in node.show(job)["attempts"]]
    assert resumed == [str(given), str(given), str(own)]
    for attempt, path in enumerate(resumed, start=1):
        said = f"from [{path}], in [{node.work}/out], given [--epochs 3 --from {path}]"
        assert said in log(node, job, attempt)


def test_resume_latest_takes_what_an_earlier_run_left(make_node: Callable[..., Node]) -> None:
    node = node_with(make_node)
    old = last_weeks(node, 9000)
    job = node.submit(
        "--vram", "0", "--checkpoint-dir", "out", "--resume", "latest", script(node, f"{TRAINER} --steps 9001")
    )
    assert node.wait(job) == 0
    assert f"resumed from {old} at step 9000" in log(node, job, 1)
    assert f"gq: resuming from {old}" in log(node, job, 1)


def test_a_command_of_the_users_names_the_checkpoint(make_node: Callable[..., Node]) -> None:
    """A newer one that it names is progress, too (R3), though nobody knows its step."""
    node = node_with(make_node, crash_limit=2)
    out = node.work / "out"
    trainer = f"{TRAINER} --steps 30 --step-seconds 0.01 --save-every 10 --checkpoint-dir out"
    trainer += " --crash-at-step $((GQ_ATTEMPT * 10 + 5))"
    names = "ls -td out/checkpoint-* | head -1"
    job = node.submit("--vram", "0", "--checkpoint-command", names, script(node, trainer))
    assert node.wait(job) == 0
    resumed = [attempt["resumed_from"] for attempt in node.show(job)["attempts"]]
    assert resumed == [None, f"{out}/checkpoint-10", f"{out}/checkpoint-20"]
    assert "in []" in log(node, job, 1)  # without --checkpoint-dir the variable is unset


def test_without_a_complete_checkpoint_it_starts_over_and_says_so(make_node: Callable[..., Node]) -> None:
    node = node_with(make_node)
    trainer = f"{TRAINER} --steps 20 --step-seconds 0.01 --save-every 10 --crash-at-step 15 --crash-attempts 1"
    prelude = f"[ $GQ_ATTEMPT = 2 ] || exec {trainer}\n"
    path = node.work / "train.sh"
    path.write_text(prelude + f'echo "from [$GQ_RESUME_FROM]"\nexec {TRAINER} --steps 5\n')
    job = node.submit("--vram", "0", "--checkpoint-dir", "out", str(path))
    node.until_state(job, "backoff")
    shutil.rmtree(node.work / "out")
    assert node.wait(job) == 0
    assert "from []" in log(node, job, 2)
    assert "gq: starting from the beginning" in log(node, job, 2)
