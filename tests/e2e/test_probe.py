"""`gq probe` against the real daemon: measures, says the claim, submits the job with it; and --cap in a real job."""

import getpass
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.node import SIMJOB, Node
from tests.hook.standins import TORCH

pytestmark = pytest.mark.e2e

CONFIG = f"""
[daemon]
sample = "1s"
shared_logins = ["{getpass.getuser()}"]
"""


@pytest.fixture
def node(make_node: Callable[..., Node]) -> Node:
    return make_node(config=CONFIG).start()


def test_the_first_steps_are_measured_and_the_job_is_submitted_with_the_claim(node: Node) -> None:
    work = ["--", *SIMJOB, "--vram", "5G", "--seconds", "1h"]
    done = node.gq("probe", "--steps", "10", "--name", "seven", "--submit", *work)
    said = done.stdout.splitlines()
    assert said[0].startswith("peak 5.0 GiB over 20 steps in ")  # one line alone could be a setting
    assert "were not seen" in said[0]
    assert said[1:] == ["use --vram 5.5G", "job 2 submitted: seven, 5.5 GiB"]
    probe, real = node.job(1), node.job(2)
    assert (probe["name"], probe["state"], probe["attempt"]) == ("probe: seven", "cancelled", 1)
    assert real["vram_mib"] == 5632
    node.until_state(2, "running")


def test_a_probe_that_saw_memory_rise_says_so_and_does_not_submit(node: Node) -> None:
    work = ["--", *SIMJOB, "--vram", "2G", "--grow", "1G/4", "--seconds", "1h"]
    done = node.gq("probe", "--steps", "30", "--submit", *work, check=False)
    assert done.returncode == 1
    assert done.stdout.splitlines()[1].endswith("G or more")
    assert "it was still rising: by " in done.stderr
    assert "not submitted" in done.stderr
    assert [job["id"] for job in node.jobs()] == [1]


def test_a_short_run_is_seen_whole(node: Node) -> None:
    done = node.gq(
        "probe", "--json", "--steps", "1000", "--vram", "3G", "--", *SIMJOB, "--vram", "2G", "--seconds", "3"
    )
    found = json.loads(done.stdout)
    assert (found["peak_vram_mib"], found["vram_mib"], found["whole"], found["job"]) == (2048, 2560, True, None)


def test_without_steps_in_its_log_the_time_ends_it(node: Node) -> None:
    work = ["--", *SIMJOB, "--vram", "1G", "--idle-after", "0.1", "--seconds", "1h"]
    said = node.gq("probe", "--minutes", "0.05", *work).stdout
    assert "peak 1.0 GiB over no step that its log shows, in" in said


def test_a_probe_that_fails_says_why_and_submits_nothing(node: Node) -> None:
    done = node.gq("probe", "--submit", "--", *SIMJOB, "--vram", "40G", check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "the probe, job 1, failed" in done.stderr
    assert [job["id"] for job in node.jobs()] == [1]


def test_ctrl_c_cancels_the_probe(node: Node) -> None:
    words = ["probe", "--minutes", "10", "--", *SIMJOB, "--vram", "1G", "--idle-after", "0.1", "--seconds", "1h"]
    asking = subprocess.Popen(
        [sys.executable, "-m", "gq", *words], env=node.env, cwd=node.work, stderr=subprocess.PIPE, text=True
    )
    node.until(lambda: node.states().get(1) == "running", "the probe runs")
    asking.send_signal(signal.SIGINT)
    _, said = asking.communicate(timeout=30)
    assert asking.returncode == 130
    assert "is cancelled" in said
    node.until_state(1, "cancelled")


# -- --cap -------------------------------------------------------------------------------------------------------

SHOW = "import os, sys; print({n: os.environ.get(n) for n in sys.argv[1:]}); print('gpuqueue_cap' in sys.modules)"


def test_a_capped_job_has_its_claim_in_its_environment_and_the_hook_in_its_python(node: Node) -> None:
    names = ["GQ_CAP_MIB", "GQ_REPORT", "XLA_PYTHON_CLIENT_MEM_FRACTION"]
    job = node.submit("--vram", "8G", "--cap", "--", sys.executable, "-c", SHOW, *names)
    assert node.wait(job) == 0
    log = node.logs(job)
    assert "'GQ_CAP_MIB': '7692'" in log
    assert f"'GQ_REPORT': '{node.run_directory(job) / 'user/report.json'}'" in log
    assert "'XLA_PYTHON_CLIENT_MEM_FRACTION': '0.2" in log
    assert log.splitlines()[-1] == "True"
    assert "--cap: PyTorch, TensorFlow and JAX may hold 7.5 GiB" in log
    assert node.show(job)["settings"]["cap"] == "yes"


def test_what_the_user_set_holds_and_a_container_is_said_not_to_be_capped(node: Node, tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\n{sys.executable} -c "{SHOW}" XLA_PYTHON_CLIENT_MEM_FRACTION\n')
    docker.chmod(0o755)
    tmp_path.chmod(0o755)
    mine = {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".5"}
    job = node.submit("--vram", "8G", "--cap", "--", str(docker), "run", "vllm/vllm-openai", env=mine)
    node.wait(job)
    log = node.logs(job)
    assert "{'XLA_PYTHON_CLIENT_MEM_FRACTION': '.5'}" in log
    for said in ("JAX keeps to", "--gpu-memory-utilization 0.2", "what docker starts has an environment of its own"):
        assert said in log


def test_without_cap_nothing_is_told_and_doctor_says_what_it_would_be(node: Node) -> None:
    job = node.submit("--vram", "8G", "--", sys.executable, "-c", SHOW, "GQ_CAP_MIB")
    node.wait(job)
    assert node.logs(job).splitlines()[-2:] == ["{'GQ_CAP_MIB': None}", "False"]
    (cap,) = [check for check in json.loads(node.gq("doctor", "--json").stdout) if check["name"] == "cap"]
    assert (cap["level"], "PyTorch 1.8" in cap["text"]) == ("note", True)


def test_what_pytorch_held_is_reported_and_shown(node: Node) -> None:
    (node.work / "torch.py").write_text(TORCH)  # a stand-in: no GPU here
    paths = {"PYTHONPATH": f"{node.work}:{node.env['PYTHONPATH']}"}
    run = "import torch; torch.cuda.init(); print(torch.cuda.capped)"
    job = node.submit("--vram", "8G", "--cap", "--", sys.executable, "-c", run, env=paths)
    assert node.wait(job) == 0
    assert "{0: 0.240375, 1: 0.240375}" in node.logs(job)
    (attempt,) = node.show(job)["attempts"]
    assert (attempt["torch"]["allocated_mib"], attempt["torch"]["reserved_mib"]) == (101, 201)


OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 31.84 GiB "
    "of which 22.00 GiB is free. Including non-PyTorch memory, this process has 7.00 GiB memory in use. Of the "
    "allocated memory 6.40 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated."
)


def test_a_job_that_meets_its_own_cap_is_told_so(node: Node) -> None:
    dies = f"import sys; sys.exit({OUT_OF_MEMORY!r})"
    job = node.submit("--vram", "8G", "--cap", "--restart", "never", "--", sys.executable, "-c", dies)
    assert node.wait(job) == 1
    (attempt,) = node.show(job)["attempts"]
    assert attempt["diagnosis"]["cause"] == "quota_cap"
