"""A real Hugging Face Trainer, killed with SIGKILL under the real daemon, goes on where it was: at the same step with
the same loss. Needs what tests/requirements-ml.txt lists; says so when it is skipped."""

import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.node import Node

pytestmark = [pytest.mark.e2e, pytest.mark.ml]
pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

CONFIG = '[daemon]\nsample = "1s"\n[restart]\nbackoff_base = "1s"\n'
TRAINER = [sys.executable, str(Path(__file__).with_name("hf_trainer.py"))]
IMPORTS_S = 180  # transformers and PyTorch on a busy machine


@pytest.mark.parametrize(
    "how", [[], ["--resume-arg", "--resume_from_checkpoint {checkpoint}"]], ids=["GQ_RESUME_FROM", "--resume-arg"]
)
def test_a_killed_trainer_goes_on_at_its_newest_complete_checkpoint(
    make_node: Callable[..., Node], how: list[str]
) -> None:
    node = make_node(config=CONFIG).start()
    out = node.work / "out"
    job = node.submit("--vram", "1G", "--checkpoint-dir", "out", *how, "--", *TRAINER)
    node.until(lambda: "step 11 loss" in log(node, job, 1), "it is past its second save", timeout=IMPORTS_S)
    os.kill(node.alive(job)["job"]["pid"], signal.SIGKILL)
    node.until(lambda: node.job(job)["state"] == "backoff" or node.job(job)["attempt"] == 2, "its end is noticed")
    assert sorted(path.name for path in out.iterdir()) == ["checkpoint-10", "checkpoint-5"]

    assert node.wait(job, timeout=IMPORTS_S) == 0
    assert [attempt["resumed_from"] for attempt in node.show(job)["attempts"]] == [None, f"{out}/checkpoint-10"]
    assert "resuming from None" in log(node, job, 1)
    assert f"\nresuming from {out}/checkpoint-10" in log(node, job, 2)
    before, after = losses(node, job, 1), losses(node, job, 2)
    assert min(after) == 11
    assert max(after) == 20
    assert after[11] == pytest.approx(before[11], abs=1e-3)  # the same weights, optimizer, data and step
    assert before[11] < before[1] - 0.5  # which a fresh start would not have had
    assert "done at step 20" in log(node, job, 2)


def test_what_is_half_written_and_what_is_last_weeks_is_skipped(make_node: Callable[..., Node]) -> None:
    node = make_node(config=CONFIG.replace('base = "1s"', 'base = "10s"')).start()
    out = node.work / "out"
    job = node.submit("--vram", "1G", "--checkpoint-dir", "out", "--", *TRAINER)
    node.until(lambda: "step 11 loss" in log(node, job, 1), "it is past its second save", timeout=IMPORTS_S)
    os.kill(node.alive(job)["job"]["pid"], signal.SIGKILL)
    node.until_state(job, "backoff")
    half = shutil.copytree(out / "checkpoint-10", out / "checkpoint-15")
    state = json.loads((half / "trainer_state.json").read_text())
    (half / "trainer_state.json").write_text(json.dumps(state | {"global_step": 15}))
    os.truncate(half / "model.safetensors", (half / "model.safetensors").stat().st_size // 2)
    old = shutil.copytree(out / "checkpoint-5", out / "checkpoint-9000")
    then = time.time() - 7 * 86400
    for path in old.iterdir():
        os.utime(path, (then, then))

    assert node.wait(job, timeout=IMPORTS_S) == 0
    second = log(node, job, 2)
    assert min(losses(node, job, 2)) == 11
    assert f"gq: resuming from {out}/checkpoint-10" in second
    assert f"gq: skipped {old}: older than this job" in second
    assert re.search(rf"gq: skipped {half}: .*model\.safetensors", second)


def log(node: Node, job: int, attempt: int) -> str:
    return node.gq("logs", str(job), "--attempt", str(attempt), check=False).stdout


def losses(node: Node, job: int, attempt: int) -> dict[int, float]:
    found = re.findall(r"step (\d+) loss (\d+\.\d+)", log(node, job, attempt))
    return {int(step): float(loss) for step, loss in found}
