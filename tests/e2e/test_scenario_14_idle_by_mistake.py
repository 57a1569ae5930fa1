"""Scenario 14, idle by mistake (I1, I2, I4): a job at 0 % GPU is not stopped as idle while its CPU is busy with
preprocessing or it downloads, nor if its account is exempt, nor before the longer window of an interactive or light
job is over. In report mode nothing is stopped at all."""

import getpass
from collections.abc import Callable

import pytest

from tests.e2e.node import Node

pytestmark = pytest.mark.e2e

CONFIG = f"""
[daemon]
sample = "1s"
shared_logins = ["{getpass.getuser()}"]
[idle]
train_window = "6s"
light_window = "1h"
interactive_window = "1h"
stalled_warn = "4s"
exempt_accounts = ["staff"]
cpu = 0.05
io = "64K"
"""
IDLE = ("--gpu-util", "0", "--seconds", "1h")


def test_what_only_looks_idle_is_not_stopped(make_node: Callable[..., Node]) -> None:
    node = make_node(cards="32607M,32607M", config=CONFIG).start()
    preprocessing = node.simjob("22G", *IDLE, "--cpu-util", "100", options=["--account", "ann"])
    download = node.simjob("2G", *IDLE, "--io-rate", "8M")
    exempt = node.simjob("2G", *IDLE, options=["--account", "staff"])
    interactive = node.simjob("2G", *IDLE, options=["--interactive"])
    light = node.simjob("2G", *IDLE, options=["--light"])
    innocent = (preprocessing, download, exempt, interactive, light)
    for job in innocent:
        node.until_state(job, "running")
    for _ in range(2):  # two windows pass, as the jobs that are idle in earnest show
        node.until_state(node.simjob("1G", *IDLE), "stopped")
    for job in innocent:
        found = node.job(job)
        assert (found["state"], found["attempt"]) == ("running", 1)
        assert "will be stopped" not in node.logs(job)
    for job in (preprocessing, download):
        assert "stalled: GPU at 0.0 %" in node.logs(job)
        assert [event["kind"] for event in node.show(job)["events"]].count("warned") == 1


def test_report_mode_says_what_would_have_happened_and_stops_nothing(make_node: Callable[..., Node]) -> None:
    node = make_node(config=CONFIG + 'mode = "report"\n').start()
    first, second = node.simjob("2G", *IDLE), node.submit("--vram", "2G", "--", "sleep", "3600")
    for job in (first, second, node.simjob("1G", *IDLE)):  # the last one is a window later than the first
        node.until(
            lambda job=job: "report only, would have been stopped: idle for" in node.logs(job), f"job {job} is reported"
        )
    for job in (first, second):
        assert node.job(job)["state"] == "running"
        events = node.show(job)["events"]
        assert "stopping" not in {event["kind"] for event in events}
        assert sum("report only" in event["text"] for event in events) == 1
