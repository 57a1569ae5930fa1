"""The cause decides what becomes of a job that died (R5, O2): PyTorch's own words, the true neighbours, and the advice
that `gq show` prints."""

import getpass
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest

from gpuqueue.backends import kernel
from gpuqueue.backends.kernel import KMSG
from tests.e2e.accounts import Account
from tests.e2e.node import Node

pytestmark = pytest.mark.e2e

GIB = 1024
QUICK = f"""
[daemon]
sample = "1s"
shared_logins = ["{getpass.getuser()}"]
[restart]
backoff_base = "1s"
backoff_max = "1s"
"""
# 12 GiB of 31.8 are held and unused in pieces, and 4 GiB in one piece are not to be had.
FRAGMENTED = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 31.84 GiB "
    "of which 1.00 GiB is free. Including non-PyTorch memory, this process has 19.00 GiB memory in use. Of the "
    "allocated memory 6.50 GiB is allocated by PyTorch, and 12.00 GiB is reserved by PyTorch but unallocated."
)


@pytest.fixture
def node(make_node: Callable[..., Node]) -> Node:
    return make_node(config=QUICK).start()


def diagnoses(node: Node, job: int) -> list[dict[str, str] | None]:
    return [attempt["diagnosis"] for attempt in node.show(job)["attempts"]]


def kinds(node: Node, job: int) -> list[str]:
    return [event["kind"] for event in node.show(job)["events"]]


def test_out_of_memory_for_real_ends_with_the_advice_and_is_not_retried(node: Node) -> None:
    neighbour = node.simjob("20G", "--seconds", "1h")
    node.until(lambda: node.card()["used_mib"] == 20 * GIB, "the neighbour holds what it may")
    job = node.simjob("16G", options=["--vram", "3G"])
    assert node.wait(job) == 1

    ended = node.job(job)
    assert (ended["state"], ended["attempt"], ended["reason_code"]) == ("failed", 1, "out_of_memory")
    assert ended["reason"].startswith("ran out of GPU memory: it held ")
    assert "beyond its claim of 3.0 GiB: claim 12.7 GiB or more" in ended["reason"]
    (found,) = diagnoses(node, job)
    assert found is not None
    assert (found["cause"], found["confidence"]) == ("out_of_memory", "high")
    assert found["evidence"].startswith("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate")
    page = node.gq("show", str(job)).stdout
    for said in ("why try 1 failed", "out of memory (confidence high)", "evidence", "advice"):
        assert said in page
    # The neighbour, who is within its claim, is neither blamed nor touched.
    assert f"job {neighbour}" not in ended["reason"]
    assert node.job(neighbour)["state"] == "running"


def test_grow_tries_once_more_with_what_it_turned_out_to_need_and_a_margin(node: Node) -> None:
    holder = node.simjob("14G", "--seconds", "1h", options=["--account", "eve"])
    node.until(lambda: node.card()["used_mib"] == 14 * GIB, "another job holds its part")
    needs = ["--grow", "14G", "--grow-to", "18G", "--steps", "3"]
    job = node.simjob("4G", *needs, options=["--vram", "4G", "--grow"])
    node.until(lambda: "requeued" in kinds(node, job), "it died and is in the queue again")
    waits = node.job(job)
    assert (waits["state"], waits["restarts"]) == ("queued", 1)
    assert waits["vram_mib"] == pytest.approx(18 * GIB * 1.1, abs=16)  # PyTorch's message rounds
    assert any("tried once more with 19.8 GiB (--grow)" in event["text"] for event in node.show(job)["events"])
    node.gq("cancel", str(holder))
    assert node.wait(job) == 0
    assert node.job(job)["attempt"] == 2


def test_grow_does_not_wait_for_what_can_never_start(node: Node) -> None:
    job = node.simjob("4G", "--grow", "30G", "--steps", "3", options=["--vram", "4G", "--grow"])
    assert node.wait(job) == 1
    ended = node.job(job)
    assert (ended["state"], ended["attempt"]) == ("failed", 1)
    assert "(--grow: 23.3 GiB is the most that could start here)" in ended["reason"]


# Both victims have claimed 10 GiB, and take it when they are told to.
VICTIM = "until [ -e go ]; do sleep 0.05; done; exec python3 -m gpuqueue.simjob --vram 10G --steps 3"


def victim(node: Node) -> int:
    job = node.submit("--vram", "10G", "--", "sh", "-c", VICTIM)
    node.until_state(job, "running")
    return job


def test_the_victim_of_a_neighbour_restarts_free_of_charge_and_the_offender_is_named(
    make_node: Callable[..., Node],
) -> None:
    """O2. The tolerance is so large that O1 does not stop the offender before anything has happened."""
    node = make_node(config=QUICK + '[overuse]\ntolerance = "30G"\n').start()
    job = victim(node)
    greedy = ["--grow", "20G", "--grow-to", "24G", "--seconds", "1h"]
    offender = node.simjob("4G", *greedy, options=["--vram", "4G", "--account", "eve"])
    node.until(lambda: node.card()["used_mib"] == 24 * GIB, "the offender has taken far more than it declared")
    (node.work / "go").touch()
    node.until(lambda: node.job(job)["restarts"] == 1, "the victim has died of it")

    named = f"job {offender} of eve declared 4.0 GiB and held 24.0 GiB"
    (found,) = diagnoses(node, job)
    assert found is not None
    assert (found["cause"], found["confidence"], found["advice"]) == ("neighbour", "high", named)
    said = [event["text"] for event in node.show(job)["events"] if event["kind"] == "requeued"]
    died = f"job {job} attempt 1 ended: exited with status 1: neighbour"
    assert said == [f"{died}; queued: ran out of GPU memory that was promised to it: {named}"]
    # Free of charge: no pause, no failure counted; it waits for the VRAM alone, and then runs.
    assert node.job(job)["state"] == "queued"
    assert f"job {offender} of eve" in node.why(job)
    node.gq("cancel", str(offender))
    assert node.wait(job) == 0


def test_the_victim_of_a_stranger_restarts_free_of_charge_and_the_stranger_is_named(node: Node) -> None:
    job = victim(node)
    stranger = node.stranger("25G", "--seconds", "1h")
    try:
        node.until(lambda: node.card()["foreign_mib"] == 25 * GIB, "the stranger has taken what was promised")
        (node.work / "go").touch()
        node.until(lambda: node.job(job)["restarts"] == 1, "the victim has died of it")
        (found,) = diagnoses(node, job)
        assert found is not None
        assert (found["cause"], found["confidence"]) == ("neighbour", "high")
        assert found["advice"] == f"pid {stranger.pid} of {getpass.getuser()} held 25.0 GiB outside the queue"
        assert node.job(job)["reason_code"] == "foreign_vram"
    finally:
        stranger.kill()
        stranger.wait()
    assert node.wait(job) == 0
    assert node.job(job)["attempt"] == 2


def test_who_runs_out_among_neighbours_that_keep_to_their_claims_needed_more_itself(node: Node) -> None:
    """O2: a message without numbers accuses nobody, and `gq why` says what it was."""
    neighbour = node.simjob("6G", "--seconds", "1h")
    node.until(lambda: node.card()["used_mib"] == 6 * GIB, "the neighbour holds what it may")
    held = shlex.join([sys.executable, "-m", "gpuqueue.simjob", "--vram", "2G", "--seconds", "3"])
    dies = f"{held}; echo 'RuntimeError: CUDA error: out of memory'; exit 1"
    job = node.submit("--vram", "4G", "--restart", "never", "--", "sh", "-c", dies)
    assert node.wait(job) == 1
    (found,) = diagnoses(node, job)
    assert found is not None
    assert (found["cause"], found["confidence"]) == ("out_of_memory", "medium")
    assert "Nobody had taken of the 4.0 GiB promised to it" in found["advice"]
    assert "(2.0 GiB were measured)" in found["advice"]
    assert "exited with status 1: probably out of memory. Nobody had taken of the 4.0 GiB promised" in node.why(job)
    assert node.job(neighbour)["state"] == "running"


def test_the_peak_is_at_least_what_the_job_says_that_it_held_when_it_died(node: Node) -> None:
    """A process that is gone before a card is read is in no measurement; PyTorch's last words count then."""
    job = node.submit("--vram", "4G", "--restart", "never", "--", "sh", "-c", f"echo '{FRAGMENTED}'; exit 1")
    assert node.wait(job) == 1
    assert node.job(job)["peak_vram_mib"] == 19 * GIB
    assert node.show(job)["attempts"][0]["peak_vram_mib"] == 19 * GIB
    (run,) = json.loads(node.gq("history", "--json").stdout)
    assert (run["job_id"], run["peak_mib"]) == (job, 19 * GIB)


@pytest.mark.root
def test_who_the_kernel_killed_for_host_memory_is_told_so_and_not_retried(node: Node) -> None:
    """R5, by the kernel's own record. It is written by hand: root's lines are records like any other."""
    if not os.access(KMSG, os.W_OK):
        pytest.skip(f"{KMSG} is not there, or not writable even for root, as in a container")
    job = node.submit("--vram", "1G", "--", "sh", "-c", "echo $$ > pid.part; mv pid.part pid; exec sleep 1h")
    node.until((node.work / "pid").exists, "the job tells its pid")
    pid = int((node.work / "pid").read_text())
    KMSG.write_text(f"<4>Out of memory: Killed process {pid} (python) total-vm:99kB, anon-rss:99kB, UID:0\n")
    os.kill(pid, signal.SIGKILL)
    assert node.wait(job) == 128 + signal.SIGKILL
    ended = node.job(job)
    assert (ended["state"], ended["attempt"], ended["reason_code"]) == ("failed", 1, "no_retry")
    (found,) = diagnoses(node, job)
    assert found is not None
    assert (found["cause"], found["confidence"]) == ("host_out_of_memory", "high")
    assert f"Killed process {pid}" in found["evidence"]
    assert "host out of memory" in node.why(job)


@pytest.mark.root
def test_a_job_that_dies_of_a_worker_killed_long_before_is_told_so(node: Node) -> None:
    """Whom the kernel killed was the job's, although no look since then has seen it."""
    if not os.access(KMSG, os.W_OK):
        pytest.skip(f"{KMSG} is not there, or not writable even for root, as in a container")
    waits = "sleep 1h & echo $! > pid.part; mv pid.part pid; wait $!; sleep 3; exit 1"
    job = node.submit("--vram", "1G", "--", "sh", "-c", waits)
    node.until((node.work / "pid").exists, "the job tells its worker's pid")
    looks = ticks(node)
    node.until(lambda: ticks(node) > looks + 1, "the daemon has looked at it")
    pid = int((node.work / "pid").read_text())
    KMSG.write_text(f"<4>Out of memory: Killed process {pid} (python) total-vm:99kB, anon-rss:99kB, UID:0\n")
    os.kill(pid, signal.SIGKILL)
    assert node.wait(job) == 1
    assert "exited with status 1: host out of memory; not retried" in node.why(job)


def ticks(node: Node) -> int:
    found = re.search(r"running, (\d+) ticks? so far", node.gq("doctor", check=False).stdout)
    assert found is not None
    return int(found[1])


@pytest.mark.root
def test_an_xid_of_the_jobs_own_process_on_its_own_card_is_its_cause(node: Node) -> None:
    """One of another card says nothing, whatever its pid."""
    if not os.access(KMSG, os.W_OK):
        pytest.skip(f"{KMSG} is not there, or not writable even for root, as in a container")
    found = {}
    waits = ("sh", "-c", "until [ -e go ]; do sleep 0.05; done; exit 7")
    for address in (node.card()["pci_bus_id"], "00000000:FE:00.0"):
        job = node.submit("--vram", "1G", "--restart", "never", "--", *waits)
        node.until_state(job, "running")
        card = address.lower()[4:].rpartition(".")[0]
        pid = node.alive(job)["job"]["pid"]
        KMSG.write_text(f"<4>NVRM: Xid (PCI:{card}): 31, pid={pid}, name=sh, Ch 00000008, intr 00000000. MMU Fault\n")
        (node.work / "go").touch()
        assert node.wait(job) == 7
        (node.work / "go").unlink()
        found[address] = (diagnoses(node, job)[0] or {}).get("cause")
    assert list(found.values()) == ["illegal_access", None]


# Dies like the message unless the allocator is told to grow in place; prints what it was told.
FRAGMENTS = """
import os, sys
told = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
print("told", told, flush=True)
if "expandable_segments:True" not in told or "--always" in sys.argv:
    sys.exit({words!r})
"""


def fragmenting(node: Node, *arguments: str, **others: Any) -> int:
    code = FRAGMENTS.format(words=FRAGMENTED)
    return node.submit("--vram", "20G", "--", "python3", "-c", code, *arguments, **others)


def test_fragmentation_is_retried_once_with_expandable_segments(node: Node) -> None:
    kept = "roundup_power2_divisions:[256:1,>:8],max_split_size_mb:512"
    own = {"PYTORCH_CUDA_ALLOC_CONF": f"expandable_segments:False,{kept}"}
    job = fragmenting(node, env=own)
    assert node.wait(job) == 0
    assert node.job(job)["attempt"] == 2
    told = f"{kept},expandable_segments:True"
    log = node.logs(job)
    assert f"told {told}" in log  # what the user had set stays
    assert f"gq: PYTORCH_CUDA_ALLOC_CONF={told}, since GPU memory was fragmented" in log


def test_fragmentation_that_expandable_segments_do_not_cure_is_out_of_memory(node: Node) -> None:
    job = fragmenting(node, "--always")
    assert node.wait(job) == 1
    ended = node.job(job)
    assert (ended["state"], ended["attempt"], ended["reason_code"]) == ("failed", 2, "out_of_memory")
    found = diagnoses(node, job)
    assert [one and one["cause"] for one in found] == ["fragmentation", "fragmentation"]


HOPELESS = [
    ("#!/usr/bin/env python3\nimport no_such_module_here\n", 1, "not retried: install `no_such_module_here`"),
    ("#!/bin/sh\npython9.9 train.py\n", 127, "not retried: `python9.9` is not on the job's PATH"),
    ("#!/bin/bash\npython9.9 train.py\n", 127, "not retried: `python9.9` is not on the job's PATH"),
    ("#!/no/such/python\n", 127, "could not start: /no/such/python: no such command"),
    ("#!/bin/sh\npython3 gone.py\n", 2, "program error; not retried: the script is not where the command says"),
    ("#!/bin/sh\nbash gone.sh\n", 127, "not retried: `gone.sh` is not there"),
    ("#!/bin/sh\n./data\n", 126, "not retried: `./data` may not be executed"),
    ("#!/usr/bin/env python3\nraise OSError(28, 'No space left on device', 'model.bin')\n", 1, "not retried: "),
]


def test_what_another_try_would_only_meet_again_is_not_retried(node: Node) -> None:
    (node.work / "data").touch()
    told = {}
    for number, (text, status, reason) in enumerate(HOPELESS):
        path = node.work / f"train{number}"
        path.write_text(text)
        told[node.submit("--vram", "1G", str(path))] = (status, reason)
    for job, (status, reason) in told.items():
        assert node.wait(job) == status
        ended = node.job(job)
        assert (ended["state"], ended["attempt"]) == ("failed", 1), ended
        assert reason in ended["reason"]


@pytest.mark.root
def test_the_line_that_shows_the_cause_is_for_those_who_may_read_the_log(node: Node, people: list[Account]) -> None:
    """A2: everybody sees the queue, cause and advice included; the log is its owner's."""
    a, b = people
    job = node.submit("--vram", "1G", "--", "python3", "-c", "import secret_project", user=b.name)
    node.until_state(job, "failed")
    seen = {}
    for who in (a, b):
        (attempt,) = json.loads(node.gq("show", str(job), "--json", user=who.name).stdout)["attempts"]
        seen[who.name] = attempt["diagnosis"]
    assert seen[a.name]["cause"] == seen[b.name]["cause"] == "missing_module"
    assert seen[b.name]["evidence"] == "ModuleNotFoundError: No module named 'secret_project'"
    assert seen[a.name]["evidence"] == ""


def test_what_is_merely_likely_decides_nothing(node: Node) -> None:
    """SIGKILL looks like the kernel's out-of-memory killer, and may be anybody's."""
    job = node.submit("--vram", "1G", "--", "sh", "-c", "[ $GQ_ATTEMPT = 2 ] || kill -9 $$")
    assert node.wait(job) == 0
    assert node.job(job)["attempt"] == 2
    first, second = diagnoses(node, job)
    assert first is not None
    # Where the kernel's log may be read, it says that the kernel had no part in it.
    likely = "host_out_of_memory" if kernel.lines(0) is None else "signal"
    assert (first["cause"], first["confidence"]) == (likely, "medium")
    assert second is None
