"""Scenario 4, the daemon dies (architecture: the run directory): three jobs run when the daemon is killed,
restarted, or told to hang up. All three go on, in the same processes, and what is recorded in the end is how each
really ended."""

import signal
from collections.abc import Callable

import pytest

from tests.e2e.node import Node

pytestmark = pytest.mark.e2e

# Each waits for its word, and ends in a way of its own.
ENDS = {
    "first": ("exit 0", "succeeded", 0),
    "second": ("exit 7", "failed", 7),
    "third": ("kill -KILL $$", "failed", 128 + signal.SIGKILL),
}


def _killed(node: Node, meanwhile: Callable[[], None]) -> None:
    node.kill()
    meanwhile()
    node.start()


def _restarted(node: Node, meanwhile: Callable[[], None]) -> None:
    assert node.stop() == 0
    meanwhile()
    node.start()


def _hung_up(node: Node, meanwhile: Callable[[], None]) -> None:
    assert node.process is not None
    node.process.send_signal(signal.SIGHUP)
    meanwhile()
    node.until(lambda: "SIGHUP" in node.tail(), "the daemon took the signal")
    assert node.process.poll() is None


@pytest.mark.parametrize("happens", [_killed, _restarted, _hung_up])
def test_running_jobs_go_on_and_their_true_ends_are_recorded(
    node: Node, happens: Callable[[Node, Callable[[], None]], None]
) -> None:
    jobs = {
        name: node.submit(
            *("--vram", "4G", "--restart", "never", "--"),
            *("bash", "-c", f"until [ -e end-{name} ]; do sleep 0.1; done; echo {name} ends; {end}"),
        )
        for name, (end, _, _) in ENDS.items()
    }
    for job in jobs.values():
        node.until_state(job, "running")
    before = {name: node.alive(job)["job"] for name, job in jobs.items()}

    def end(name: str) -> None:
        (node.work / f"end-{name}").touch()

    def second_ends() -> None:
        """While nobody is there to see it, where the daemon is down."""
        end("second")
        node.until((node.run_directory(jobs["second"]) / "exit.json").exists, "its shim has noted how it ended")

    happens(node, second_ends)
    node.until_state(jobs["second"], ENDS["second"][1])
    for name in ("first", "third"):
        assert node.job(jobs[name])["state"] == "running"
        assert node.alive(jobs[name])["job"] == before[name]
        end(name)
    for name, job in jobs.items():
        _, state, exit_code = ENDS[name]
        ended = node.until_state(job, "succeeded", "failed")
        assert (ended["state"], ended["exit_code"], ended["attempt"]) == (state, exit_code, 1)
        assert node.wait(job) == exit_code
        assert node.logs(job).count(f"{name} ends") == 1
