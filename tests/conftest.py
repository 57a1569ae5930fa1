"""What every room's tests may use."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings


@pytest.fixture
def open_path() -> Iterator[Path]:
    """An empty directory that every user of the machine can reach, which pytest's own are not. Its path is short
    enough for a Unix socket."""
    directory = Path(tempfile.mkdtemp(prefix="gq-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


# Of an example on a busy machine, how long it takes says nothing.
settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")


def pytest_configure() -> None:
    """A shell starts what runs in its background with these ignored, and whoever ignores a signal hands that on:
    neither gq nor a job could be interrupted."""
    for number in (signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two a core for `-n auto`, since the end-to-end tests mostly wait; on a large machine eight are enough."""
    cores = len(os.sched_getaffinity(0))
    return min(2 * cores, max(cores, 8))


def pytest_report_header() -> str:
    return "tests marked root run" if os.geteuid() == 0 else "not root: tests marked root are skipped"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need root say so where they cannot run."""
    if os.geteuid() == 0:
        return
    skip = pytest.mark.skip(reason="needs root: real Unix accounts, cgroups or mounts")
    for item in items:
        if item.get_closest_marker("root"):
            item.add_marker(skip)
