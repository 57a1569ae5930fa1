"""One daemon per node where the cards are real."""

import os
from pathlib import Path

import pytest

from gpuqueue.daemon.lock import hold_name, hold_node
from gpuqueue.wire.errors import GpuqueueError


def test_a_second_daemon_is_refused_while_the_first_lives_and_served_after(tmp_path: Path) -> None:
    path = tmp_path / "node.lock"
    first = hold_node(path)
    with pytest.raises(GpuqueueError, match=rf"another gpuqueued \(pid {os.getpid()}\)"):
        hold_node(path)
    os.close(first)
    os.close(hold_node(path))


def test_the_nodes_own_name_is_held_once_and_leaves_nothing_behind() -> None:
    name = f"\0gpuqueued.test.{os.getpid()}"  # not the node's: a daemon of another test may hold that
    first = hold_name(name)
    with pytest.raises(GpuqueueError, match="already serves this node's cards"):
        hold_name(name)
    os.close(first)
    os.close(hold_name(name))
