from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.canned import CannedDaemon, Respond
from tests.cli.running import Gq


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[Respond], CannedDaemon]]:
    """Starts a canned daemon with the given answers; it ends with the test."""
    with ExitStack() as stack:
        yield lambda respond: stack.enter_context(CannedDaemon(tmp_path / "gq.sock", respond))


@pytest.fixture
def gq(tmp_path: Path) -> Gq:
    """The `gq` command, as a process of its own in an empty directory, asking the socket of `serve`."""
    home = tmp_path / "home"
    home.mkdir()
    return Gq(home, {"GQ_SOCKET": str(tmp_path / "gq.sock"), "HOME": str(home), "PATH": "/usr/bin:/bin"})
