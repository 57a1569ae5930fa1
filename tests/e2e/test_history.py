"""Claims from history, from the first run to the export: what runs took is kept, decides `--vram auto`, is held against
what people write behind `--vram`, and corrects estimates."""

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.accounts import Account
from tests.e2e.node import SIMJOB, Node

pytestmark = pytest.mark.e2e

CONFIG = '[daemon]\nsample = "1s"\n'
TRAINING = f"""#!/bin/sh
# What `gq submit` reads: a training of 0.5 B parameters. What runs: a stand-in that takes less than estimated.
: --model_name_or_path Qwen/Qwen2.5-0.5B --per_device_train_batch_size 1
exec {sys.executable} -m gpuqueue.simjob --vram 3G --seconds 3 --gpu-util "$1"
"""


def submitted(node: Node, *words: str) -> tuple[int, int, str]:
    """(job id, its claim in MiB, what the submitter was told)."""
    answer = json.loads(node.gq("submit", "--json", *words).stdout)
    return answer["job"]["id"], answer["job"]["vram_mib"], " ".join(answer["notes"])


def test_three_runs_decide_the_claim_of_the_fourth_also_after_the_daemon_died(node: Node) -> None:
    run = ("--", *SIMJOB, "--vram", "4G", "--seconds", "3")
    refused = node.gq("submit", "--vram", "auto", *run, check=False)
    assert refused.returncode == 2
    assert "--vram auto has nothing to go by" in refused.stderr
    assert "gq probe" in refused.stderr

    jobs = [submitted(node, "--vram", "6G", *run)[0] for _ in range(3)]
    assert [node.wait(job) for job in jobs] == [0, 0, 0]
    node.kill()
    node.start()
    fourth, claim_mib, told = submitted(node, "--vram", "auto", *run)
    assert claim_mib == 4608
    assert told == "4.5 GiB claimed: three runs peaked at 4.0 GiB"
    assert node.wait(fourth) == 0

    assert submitted(node, "--vram", "22G", *run)[2] == "four runs peaked at 4.0 GiB; you ask for 22.0 GiB"
    assert "you ask for 2.0 GiB: it may be stopped" in submitted(node, "--vram", "2G", *run)[2]
    assert submitted(node, "--vram", "5G", *run)[2] == ""
    other, claim_mib, told = submitted(node, "--vram", "auto", *run[:-1], "2")
    assert claim_mib == 4608
    assert "other arguments" in told
    assert "four runs like it" in node.gq("show", str(other)).stdout.replace("\n          ", "")


def test_every_attempt_is_in_the_history_and_its_export(make_node: Callable[..., Node]) -> None:
    node = make_node(config=CONFIG + '[restart]\nbackoff_base = "1s"\ncrash_limit = 2\n').start()
    good = node.simjob("2G", "--seconds", "3", options=("--name", "good"))
    bad = node.simjob("1G", "--steps", "9", "--step-seconds", "0.2", "--crash-at-step", "3", options=("--name", "bad"))
    node.until_state(bad, "stopped")
    assert node.wait(good) == 0
    rows = list(csv.DictReader(io.StringIO(node.gq("history", "--csv").stdout)))
    found = {(int(row["job_id"]), int(row["attempt"])): row for row in rows}
    assert set(found) == {(good, 1), (bad, 1), (bad, 2)}
    row = found[(good, 1)]
    assert (row["name"], row["state"], row["claim_mib"], row["peak_mib"]) == ("good", "succeeded", "2048", "2048")
    assert (row["model"], row["estimate_mib"], row["cause"]) == ("", "", "")
    assert int(row["ran_s"]) >= 2
    assert [found[(bad, number)]["state"] for number in (1, 2)] == ["failed", "stopped"]
    assert found[(bad, 1)]["work"] == found[(bad, 2)]["work"] != row["work"]
    assert [run["job_id"] for run in json.loads(node.gq("history", "--json", "--limit", "1").stdout)] != []
    assert f"{good}.1" in node.gq("history").stdout


def test_the_curve_is_drawn_and_a_daemon_that_dies_loses_no_peak(node: Node) -> None:
    job = node.simjob("1G", "--grow", "1G", "--grow-to", "3G", "--seconds", "60", options=("--vram", "4G"))
    peak = node.until(lambda: _attempt(node, job)["peak_vram_mib"] == 3072 and _attempt(node, job), "its peak is seen")
    assert peak["curve"][-1][1] == 3072
    node.kill()
    node.start()
    seen = peak["curve"][-1][0]
    later = node.until(lambda: (now := _attempt(node, job))["curve"][-1][0] > seen and now, "the curve goes on")
    assert [peak["peak_at_s"], 3072] in later["curve"]
    assert later["peak_at_s"] == peak["peak_at_s"]
    node.gq("cancel", str(job))
    node.wait(job)
    assert [peak["peak_at_s"], 3072] in _attempt(node, job)["curve"]
    drawn = node.gq("show", str(job)).stdout
    assert "█" in drawn
    assert f"peak 3.0 GiB after {peak['peak_at_s']}s" in drawn


def _attempt(node: Node, job: int) -> dict[str, object]:
    attempts = node.show(job)["attempts"]
    return attempts[-1] if attempts else {"peak_vram_mib": None}  # type: ignore[no-any-return]


def test_an_estimate_decides_the_first_claim_and_is_corrected_by_what_runs_took(node: Node) -> None:
    script = node.work / "train.sh"
    script.write_text(TRAINING)
    jobs = []
    for percent in ("91", "92", "93"):  # three programs, so that none has a history
        script.write_text(TRAINING + f"# {percent}\n")
        job, claim_mib, told = submitted(node, "--vram", "auto", "train.sh", percent)
        assert "no run of it yet; estimated" in told
        assert "no run has shown yet how near such an estimate comes" in told
        jobs.append((job, claim_mib))
    assert [node.wait(job) for job, _ in jobs] == [0, 0, 0]
    script.write_text(TRAINING + "# anew\n")
    _, claim_mib, told = submitted(node, "--vram", "auto", "train.sh", "90")
    assert "calibrated on three runs: × 0." in told
    assert 3 * 1024 < claim_mib < jobs[0][1]
    said = node.gq("estimate", "Qwen2.5-0.5B").stdout
    assert "calibrated on 3 runs: x 0." in said
    assert "card of 31.8 GiB" in said
    shown = node.gq("show", str(jobs[0][0])).stdout
    assert "ESTIMATED" in shown


@pytest.mark.root
def test_ones_own_history_is_ones_own_and_commands_may_be_hidden(
    make_node: Callable[..., Node], people: list[Account]
) -> None:
    a, b = people
    node = make_node(config=CONFIG + "hide_commands = true\n").start()
    job = node.submit("--vram", "1G", "--", "sh", "-c", "echo secret", user=a.name)
    assert node.gq("wait", str(job), user=a.name).returncode == 0

    def rows(*words: str, user: str | None = None) -> list[tuple[str, bool, bool]]:
        runs = json.loads(node.gq("history", "--json", *words, user=user).stdout)
        return [(run["account"], "secret" in run["command"], bool(run["work"])) for run in runs]

    assert rows(user=a.name) == [(a.name, True, True)]
    assert rows(user=b.name) == []
    assert rows("--all", user=b.name) == [(a.name, False, False)]
    assert rows("--all") == [(a.name, True, True)]  # an admin
    refused = node.gq("submit", "--vram", "auto", "--", "sh", "-c", "echo secret", user=b.name, check=False)
    assert refused.returncode == 2  # what others ran decides nothing


REPORT = {
    "peak_allocated_mib": 900,
    "peak_reserved_mib": 1000,
    "parts": {"frozen_mib": 500, "trained_mib": 20, "gradients_mib": 20, "optimizer_mib": 40, "rest_mib": 320},
}


def test_what_a_job_counts_of_its_tensors_stands_beside_the_estimate_and_is_kept(node: Node, tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(TRAINING.replace("exec", f"echo '{json.dumps({'torch': REPORT})}' > \"$GQ_REPORT\"\nexec"))
    job = node.submit("--vram", "4G", "--cap", str(script), "90")
    assert node.wait(job) == 0
    page = {line[:20].strip(): line[20:].split() for line in node.gq("show", str(job)).stdout.splitlines()}
    assert page["optimizer"][-2:] == ["40", "MiB"]
    assert len(page["frozen weights"]) == 4  # estimated, and counted
    (run,) = json.loads(node.gq("history", "--json").stdout)
    assert run["torch"]["parts"] == REPORT["parts"]
    assert run["estimate_parts"]["trained_mib"] > 900  # all weights train
    (row,) = csv.DictReader(io.StringIO(node.gq("history", "--csv").stdout))
    assert (row["torch_rest_mib"], row["estimate_trained_mib"]) == ("320", str(run["estimate_parts"]["trained_mib"]))


def test_a_run_that_was_too_short_to_be_measured_is_named(node: Node) -> None:
    instant = ("--", "true")
    first = node.submit("--vram", "1G", *instant)
    assert node.wait(first) == 0
    refused = node.gq("submit", "--vram", "auto", *instant, check=False)
    assert refused.returncode == 2
    assert f"its newest run, job {first}, was too short to be measured" in refused.stderr


def test_a_claim_of_its_own_that_can_never_start_is_said_to_be_an_estimate(node: Node) -> None:
    (node.work / "train.sh").write_text(TRAINING.replace("0.5B", "72B"))
    refused = node.gq("submit", "--vram", "auto", "train.sh", "1", check=False)
    assert refused.returncode == 1
    assert "is more than" in refused.stderr
    assert "no run of it yet; estimated" in refused.stderr
    assert "gq probe" in refused.stderr
