"""R2: one job at a time saves into a checkpoint directory, and the other one knows why it waits."""

import pytest

from tests.e2e.node import Node

pytestmark = pytest.mark.e2e


def test_the_second_job_of_a_directory_waits_until_the_first_has_ended(node: Node) -> None:
    hold = ("--vram", "0", "--checkpoint-dir")
    first = node.submit(*hold, "out", "--", "sleep", "1h")
    node.until_state(first, "running")
    (node.work / "latest").symlink_to("out")
    told = node.gq("submit", *hold, str(node.work / "latest" / "."), "--", "true")
    assert f"job {first} saves into {node.work / 'out'} too" in told.stdout + told.stderr
    own = node.gq("submit", *hold, "other", "--", "true")
    assert "saves into" not in own.stdout + own.stderr
    second, third = first + 1, first + 2
    assert node.wait(third) == 0
    assert f"job {first} of " in node.why(second)
    assert "saves into the same checkpoint directory" in node.why(second)
    node.gq("cancel", str(first))
    assert node.wait(second) == 0
