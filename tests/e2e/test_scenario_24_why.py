"""Scenario 24, why? (S5, Z1): of every job that waits or has ended, `gq why` says in one line what the cause is,
with the numbers, and who holds what is in the way. Cards that failed are scenario 23's, strangers in full scenario
1's."""

import getpass
import os
import re
import signal
import sys
from collections.abc import Callable

import pytest

from tests.e2e.node import Node

pytestmark = pytest.mark.e2e

ME = getpass.getuser()
BASE = f'[daemon]\nsample = "1s"\nshared_logins = ["{ME}"]\n'
HOLD = ("--", "sleep", "3600")


def the_line(node: Node, job: int) -> str:
    said = node.gq("why", str(job)).stdout
    assert said.count("\n") == 1
    assert said.endswith("\n")
    return said.strip()


def check(node: Node, *table: tuple[int, str]) -> None:
    """Jobs, and what their lines come to say after `job ID `, as regular expressions."""
    for job, expected in table:
        node.until(
            lambda job=job, expected=expected: re.fullmatch(rf"job {job} {expected}", the_line(node, job)),
            f"job {job} says {expected!r}",
        )


def test_waiting_jobs(make_node: Callable[..., Node]) -> None:
    node = make_node(config=BASE + '[restart]\nbackoff_base = "5m"\n').start()

    def by(account: str, vram: str, *more: str) -> int:
        return node.submit("--vram", vram, "--account", account, *more)

    ann = by("ann", "12G", *HOLD)
    dan = by("dan", "8G", "--light", *HOLD)
    for job in (ann, dan):
        node.until_state(job, "running")
    # 32607 MiB: 8.5 GiB held back, 23.3 GiB for train jobs, 12 + 8 GiB taken.
    bob = by("bob", "22G", *HOLD)
    cid, fay = by("cid", "1G", *HOLD), by("fay", "2G", *HOLD)
    again, eve = by("ann", "12G", *HOLD), by("eve", "8G", "--light", *HOLD)
    broken = by("gus", "0", "--", "sh", "-c", "exit 3")
    node.gq("quota", "set", "fay", "--train", "1G")

    wait = r"queued for \S+: "
    since = r"(for under a minute|for \d+m00s)"
    anns, dans = rf"job {ann} of ann 12\.0 GiB {since}", rf"job {dan} of dan 8\.0 GiB {since}"
    start = r"; expected to start within \S+"
    check(
        node,
        (bob, rf"{wait}needs 22\.0 GiB on one card, 11\.3 GiB is free for train jobs: {anns}, {dans}{start}"),
        (cid, rf"{wait}behind job {bob} of bob, which needs 22\.0 GiB first: {anns}, {dans}"),
        (
            again,
            rf"{wait}ann uses 12\.0 GiB of its 23\.3 GiB train quota; 12\.0 GiB more does not fit: {anns}({start})?",
        ),
        (eve, rf"{wait}needs 8\.0 GiB, 512 MiB is free for light jobs: 8\.5 GiB of card 0 .* {anns}, {dans}({start})?"),
        (fay, rf"{wait}can no longer run here: 2\.0 GiB is more than fay may ever hold .*: the quota is 1\.0 GiB"),
        (broken, r"backoff for \S+: exited with status 3; next try in \dm\d\ds \(failures in a row: 1\)"),
    )


def test_jobs_on_a_card_with_a_stranger_and_few_tenants(make_node: Callable[..., Node]) -> None:
    rules = '[place]\nmax_tenants = 1\n[restart]\nper_day = 1\nbackoff_base = "1s"\n'
    node = make_node(cards="24G", config=BASE + rules).start()
    only = node.submit("--vram", "1G", "--account", "ann", *HOLD)
    node.until_state(only, "running")
    stranger = node.stranger("10G", "--seconds", "1h")
    try:
        node.until(lambda: node.card()["strangers"], "it is seen")
        crowded = node.submit("--vram", "1G", "--account", "bob", *HOLD)
        foreign = node.submit("--vram", "10G", "--account", "cid", *HOLD)
        broken = node.submit("--vram", "0", "--", "sh", "-c", "exit 5")
        wait = r"queued for \S+: "
        process = rf"pid {stranger.pid} of {ME} \(.*simjob.*, 10\.0 GiB\)"
        check(
            node,
            (crowded, rf"{wait}card 0 already has 1 tenant, the most the admin allows: job {only} of ann 1\.0 GiB .*"),
            (
                foreign,
                rf"{wait}needs 10\.0 GiB on one card: 10\.0 GiB of card 0 is held outside the queue by {process}",
            ),
            (broken, r"stopped \S+ ago: restarted 1 time within 24h; last: exited with status 5"),
        )
    finally:
        stranger.kill()
        stranger.wait()


ENDED = """
[idle]
train_window = "6s"
cpu = 0.05
stalled_warn = "2s"
stalled_stop = "5s"
[overuse]
grace = "1s"
[restart]
backoff_base = "1s"
crash_limit = 2
"""


def test_ended_jobs(make_node: Callable[..., Node]) -> None:
    node = make_node(cards="32607M,32607M", config=BASE + ENDED).start()

    def run(*command: str, restart: str = "never") -> int:
        return node.submit("--vram", "0", "--restart", restart, "--", *command)

    gone = node.work / "gone"
    gone.mkdir()
    running = node.submit("--vram", "23G", *HOLD)
    nowhere = node.submit("--vram", "22G", "--restart", "never", *HOLD, cwd=gone)
    waiting = node.submit("--vram", "23G", *HOLD)
    gone.rmdir()
    node.gq("cancel", str(running), str(waiting))
    done, seven, crashed = run("true"), run("sh", "-c", "exit 7"), run("sh", "-c", "kill -SEGV $$")
    missing = run(sys.executable, "-c", "import nothing_of_that_name", restart="on-failure")
    broken = run("sh", "-c", "exit 5", restart="on-failure")
    long = node.submit("--vram", "0", "--time", "2s", *HOLD)
    idle = node.submit("--vram", "1G", "--account", "bob", *HOLD)
    stalled = node.simjob("1G", "--gpu-util", "0", "--cpu-util", "100", "--seconds", "1h")
    full = node.simjob("40G", options=["--vram", "20G", "--gpu", "0", "--account", "eve"])
    grown = node.simjob("25G", "--seconds", "1h", options=["--vram", "1G", "--gpu", "1", "--account", "hal"])

    failed, stopped = r"failed \S+ ago: ", r"stopped \S+ ago: "
    cancelled = rf"cancelled \S+ ago: cancelled by {ME}"
    check(
        node,
        (running, cancelled),
        (waiting, cancelled),
        (nowhere, rf"{failed}could not start: cannot change directory to {gone}: No such file or directory"),
        (done, r"succeeded \S+ ago: finished"),
        (seven, rf"{failed}exited with status 7"),
        (crashed, rf"{failed}killed by SIGSEGV, not by gpuqueue"),
        (missing, rf"{failed}exited with status 1: missing module; not retried: .*nothing_of_that_name.*"),
        (broken, rf"{stopped}failed 2 times in a row without a newer checkpoint; last: exited with status 5"),
        (long, rf"{stopped}ran \S+, its time limit is 2s"),
        (idle, rf"{stopped}idle for \S+: GPU 0\.0 %, \S+ CPU cores, .* of I/O on average; limit 6s"),
        (stalled, rf"{stopped}GPU idle for \S+ while CPU or I/O was busy \(\S+ cores, .*\); limit 5s"),
        (full, rf"{failed}ran out of GPU memory: it held \S+ GiB .* may claim no more than 23\.3 GiB here: use .*"),
        (
            grown,
            rf"{stopped}declared 1\.0 GiB, used 25\.0 GiB: hal's train quota of (\S+ GiB) leaves it \1",
        ),
    )


def test_a_job_whose_end_nobody_saw(node: Node) -> None:
    job = node.submit("--vram", "1G", "--restart", "never", *HOLD)
    node.until_state(job, "running")
    record = node.alive(job)
    node.kill()
    for who in ("shim", "job"):
        os.kill(record[who]["pid"], signal.SIGKILL)
    node.start()
    # Kernels from 6.15 keep the status for whoever holds a pidfd; on others it is lost, and said to be lost.
    lost = "its exit status is lost: nobody who watched it lived to note it"
    check(node, (job, rf"failed \S+ ago: (?:{lost}|killed by SIGKILL, not by gpuqueue(?:: probably .*)?)"))
    assert node.wait(job) in (125, 128 + signal.SIGKILL)
