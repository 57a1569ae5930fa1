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


def check(node: Node, table: dict[int, str]) -> None:
    """Job -> what its line must say, as a regular expression, after `job ID `."""
    for job, expected in table.items():
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
    since = r"(since less than a minute|for \d+m00s)"
    holders = rf"job {ann} of ann 12\.0 GiB {since}, job {dan} of dan 8\.0 GiB {since}"
    behind = rf"behind job {{head}} of bob, which needs 22\.0 GiB first: {holders}"
    bob = by("bob", "22G", *HOLD)
    cid, fay = by("cid", "1G", *HOLD), by("fay", "2G", *HOLD)
    again, eve = by("ann", "12G", *HOLD), by("eve", "8G", "--light", *HOLD)
    broken = by("gus", "0", "--", "sh", "-c", "exit 3")
    node.gq("quota", "set", "fay", "--train", "1G")
    check(
        node,
        {
            bob: rf"queued for \d+s: needs 22\.0 GiB on one card, 11\.3 GiB is free for train jobs: {holders}"
            r"; expected to start in \S+",
            cid: rf"queued for \d+s: {behind.format(head=bob)}",
            again: r"queued for \d+s: ann uses 12\.0 GiB of its 23\.3 GiB train quota; 12\.0 GiB more does not fit: "
            rf"job {ann} of ann 12\.0 GiB {since}(; expected to start in \S+)?",
            eve: rf"queued for \d+s: needs 8\.0 GiB, 512 MiB is free for light jobs: 8\.5 GiB of card 0 .* {holders}.*",
            fay: r"queued for \d+s: can no longer run here: 2\.0 GiB is more than fay may ever hold with train jobs: "
            r"the quota is 1\.0 GiB",
            broken: r"backoff for \d+s: exited with status 3; next try in \dm\d\ds \(failures in a row: 1\)",
        },
    )


def test_waiting_jobs_on_a_card_with_a_stranger_and_few_tenants(make_node: Callable[..., Node]) -> None:
    node = make_node(
        cards="24G", config=BASE + "[place]\nmax_tenants = 1\n[restart]\nper_day = 1\nbackoff_base = '1s'\n"
    ).start()
    only = node.submit("--vram", "1G", "--account", "ann", *HOLD)
    node.until_state(only, "running")
    stranger = node.stranger("10G", "--seconds", "1h")
    try:
        node.until(lambda: node.card()["strangers"], "it is seen")
        crowded = node.submit("--vram", "1G", "--account", "bob", *HOLD)
        foreign = node.submit("--vram", "10G", "--account", "cid", *HOLD)
        broken = node.submit("--vram", "0", "--", "sh", "-c", "exit 5")
        check(
            node,
            {
                crowded: rf"queued for \d+s: card 0 already has 1 tenants, the most the admin allows: "
                rf"job {only} of ann 1\.0 GiB .*",
                foreign: r"queued for \d+s: needs 10\.0 GiB on one card: 10\.0 GiB of card 0 is held outside the queue "
                rf"by pid {stranger.pid} of {ME} \(.*simjob.*, 10\.0 GiB\)",
                broken: r"stopped \S+ ago: restarted 1 times within 24h; last: exited with status 5",
            },
        )
    finally:
        stranger.kill()
        stranger.wait()


ENDED = (
    BASE
    + """
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
)


def test_ended_jobs(make_node: Callable[..., Node]) -> None:
    node = make_node(cards="32607M,32607M", config=ENDED).start()
    ago = r"\S+ ago"

    def by(account: str, vram: str, *more: str) -> int:
        return node.submit("--vram", vram, "--account", account, *more)

    def never(*command: str) -> int:
        return node.submit("--vram", "0", "--restart", "never", "--", *command)

    gone = node.work / "gone"
    gone.mkdir()
    cancelled = by("ann", "23G", *HOLD)
    lost_cwd = node.submit("--vram", "22G", "--restart", "never", "--account", "ann", *HOLD, cwd=gone)
    waiting_cancelled = by("ann", "23G", *HOLD)
    gone.rmdir()
    node.gq("cancel", str(cancelled), str(waiting_cancelled))
    table = {
        lost_cwd: rf"failed {ago}: could not start: cannot change directory to {gone}: No such file or directory",
        never("true"): rf"succeeded {ago}: finished",
        never("sh", "-c", "exit 7"): rf"failed {ago}: exited with status 7",
        never("sh", "-c", "kill -SEGV $$"): rf"failed {ago}: killed by SIGSEGV, not by gpuqueue",
        never(sys.executable, "-c", "import nothing_of_that_name"): rf"failed {ago}: exited with status 1.*",
        node.submit("--vram", "0", "--", sys.executable, "-c", "import nothing_of_that_name"): rf"failed {ago}: "
        r"exited with status 1; not retried: .*nothing_of_that_name.*",
        node.submit(
            "--vram", "0", "--", "sh", "-c", "exit 5"
        ): rf"stopped {ago}: failed 2 times in a row without a newer "
        r"checkpoint; last: exited with status 5",
        node.submit("--vram", "0", "--time", "2s", *HOLD): rf"stopped {ago}: ran \ds, its time limit is 2s",
        cancelled: rf"cancelled {ago}: cancelled by {ME}",
        waiting_cancelled: rf"cancelled {ago}: cancelled by {ME}",
        by(
            "bob", "1G", *HOLD
        ): rf"stopped {ago}: idle for \S+: GPU 0\.0 %, \S+ CPU cores, \S+ KiB/s of I/O on average; limit 6s",
        node.simjob(
            "1G", "--gpu-util", "0", "--cpu-util", "100", "--seconds", "1h"
        ): rf"stopped {ago}: GPU idle for \S+ while "
        r"CPU or I/O was busy \(\S+ cores, .*\); limit 5s",
        node.simjob(
            "40G", options=["--vram", "20G", "--account", "eve"]
        ): rf"failed {ago}: ran out of GPU memory: .*20\.0 GiB.*",
        node.simjob(
            "25G", "--seconds", "1h", options=["--vram", "1G", "--gpu", "1", "--account", "hal"]
        ): rf"stopped {ago}: "
        r"declared 1\.0 GiB, used 25\.0 GiB, which is more than hal may hold here \(\S+ GiB\)",
    }
    check(node, table)


def test_a_job_whose_end_nobody_saw(node: Node) -> None:
    job = node.submit("--vram", "1G", "--restart", "never", *HOLD)
    node.until_state(job, "running")
    record = node.alive(job)
    node.kill()
    for who in ("shim", "job"):
        os.kill(record[who]["pid"], signal.SIGKILL)
    node.start()
    check(node, {job: r"failed \S+ ago: its exit status is lost: nobody who watched it lived to note it"})
    assert node.wait(job) == 125
