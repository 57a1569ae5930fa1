"""Backends for the tests of the shim: a state directory of their own, and nothing left running after."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuqueue.backends.local import LocalBackend
from tests.shim.harness import stop_everything

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real users, mounts and cgroups")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("root"):
            item.add_marker(needs_root)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user may pass through, which pytest's own are not."""
    directory = Path(tempfile.mkdtemp(prefix="gq-shim-"))
    directory.chmod(0o711)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def backend(place: Path) -> Iterator[LocalBackend]:
    backend = LocalBackend(place / "state")
    (place / "state").chmod(0o711)
    yield backend
    stop_everything(backend)


@pytest.fixture
def session_backend(place: Path) -> Iterator[LocalBackend]:
    """Without a cgroup: processes are found by descent, session and marker alone."""
    backend = LocalBackend(place / "state", "session")
    (place / "state").chmod(0o711)
    yield backend
    stop_everything(backend)


@pytest.fixture
def cwd(place: Path) -> Path:
    directory = place / "work"
    directory.mkdir()
    directory.chmod(0o777)
    return directory
