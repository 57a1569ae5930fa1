"""What `gq submit` tells of a job that it takes all the same."""

import os

import pytest

from tests.e2e.node import Node

pytestmark = pytest.mark.e2e


def notes(node: Node, *options: str) -> str:
    return node.gq("submit", "--vram", "0", *options, "--", "true").stdout


def test_a_checkpoint_directory_that_cannot_be_written(node: Node) -> None:
    (node.work / "file").write_text("")
    told = notes(node, "--checkpoint-dir", "file/out")
    assert f"{node.work / 'file'} is not a directory: the job cannot save into {node.work / 'file/out'}" in told
    (node.work / "locked").mkdir(mode=0o555)
    told = notes(node, "--checkpoint-dir", "locked/out")
    assert (f"{node.work / 'locked'} is not writable for you" in told) is (os.geteuid() != 0)  # to root it is
    assert "save" not in notes(node, "--checkpoint-dir", "new/deep/out")


def test_host_memory_that_nothing_enforces(node: Node) -> None:
    """J6: said exactly where the doctor says that this machine has no memory controller for jobs."""
    enforced = "--mem is not enforced" not in node.gq("doctor").stdout.replace("\n", " ")
    told = notes(node, "--mem", "4G")
    assert ("--mem 4.0 GiB is not enforced" in told) is not enforced
    assert "--mem" not in notes(node)
