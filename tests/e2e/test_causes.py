"""The cause decides what becomes of a job that died (R5, O2): PyTorch's own words, the true neighbours, and the advice
that `gq show` prints."""

import getpass
import re
from collections.abc import Callable
from typing import Any

import pytest

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
DIES = "import os, sys; print('step 1', flush=True); print({words!r}, file=sys.stderr); sys.exit(1)"
# 12 GiB of 31.8 are held and unused in pieces, and 4 GiB in one piece are not to be had.
FRAGMENTED = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 31.84 GiB of "
    "which 1.00 GiB is free. Including non-PyTorch memory, this process has 19.00 GiB memory in use. Of the allocated "
    "memory 6.50 GiB is allocated by PyTorch, and 12.00 GiB is reserved by PyTorch but unallocated. If reserved but "
    "unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)


@pytest.fixture
def node(make_node: Callable[..., Node]) -> Node:
    return make_node(config=QUICK).start()


def dying(node: Node, words: str, *options: str, **others: Any) -> int:
    """A job that prints these words and exits with 1."""
    return node.submit("--vram", "1G", *options, "--", "python3", "-c", DIES.format(words=words), **others)


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
    assert "beyond its claim of 3.0 GiB: claim" in ended["reason"]
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
    node.simjob("18G", "--seconds", "1h", options=["--vram", "18G", "--light", "--account", "eve"], check=False)
    holder = node.simjob("14G", "--seconds", "1h", options=["--account", "eve"])
    node.until(lambda: node.card()["used_mib"] == 14 * GIB, "another job holds its part")
    # It loads 8 GiB, and grows until the card is full.
    job = node.simjob("8G", "--grow", "512M", "--step-seconds", "0.2", options=["--vram", "8G", "--grow"])
    grown = node.until(lambda: view if (view := node.job(job))["reason_code"] == "out_of_memory" else None, "it died")
    assert grown["state"] in ("queued", "starting", "running")
    peak_mib = node.show(job)["attempts"][0]["peak_vram_mib"]
    claim_mib = grown["vram_mib"]
    assert claim_mib >= peak_mib + peak_mib // 10
    assert "(--grow)" in grown["reason"]
    node.gq("cancel", str(holder))
    second = node.until(lambda: view if (view := node.job(job))["attempt"] == 2 else None, "it has its second try")
    assert second["vram_mib"] == claim_mib
    assert node.wait(job) != 0
    assert node.job(job)["attempt"] == 2  # and only once
