"""Two jobs that save into one directory would resume from each other's checkpoints: the second is told."""

import pytest

from tests.e2e.node import Node

pytestmark = pytest.mark.e2e


def test_a_second_job_with_the_same_directory_is_told_and_one_with_its_own_is_not(node: Node) -> None:
    hold = ("--vram", "0", "--checkpoint-dir")
    first = node.submit(*hold, "out", "--", "sleep", "1h")
    told = node.gq("submit", *hold, str(node.work / "out"), "--", "sleep", "1h")
    assert f"job {first} saves into {node.work / 'out'} too" in told.stdout + told.stderr
    own = node.gq("submit", *hold, "other", "--", "sleep", "1h")
    assert "saves into" not in own.stdout + own.stderr
