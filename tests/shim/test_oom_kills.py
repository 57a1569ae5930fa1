"""8: how many of its processes the kernel killed for want of host memory, as the job's cgroup counts them. The files
are like the kernel's; tests/contracts asks a real kernel where it has a memory controller."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpuqueue.shim.containment import Containment
from tests.shim.harness import a_spec

EVENTS = "low 0\nhigh 0\nmax 9\noom 3\noom_kill {}\noom_group_kill 1\n"


def kills(group: Path, containment: str) -> int | None:
    return Containment(replace(a_spec(group), cgroup=str(group), containment=containment), None).oom_kills()


@pytest.mark.parametrize("containment", ["cgroup", "systemd"])
def test_its_own_group_counts_and_the_one_above_does_not(tmp_path: Path, containment: str) -> None:
    (tmp_path / "memory.events").write_text(EVENTS.format(2))
    assert kills(tmp_path, containment) == 2
    assert kills(tmp_path / "job", containment) is None


def test_nobody_counts_without_a_memory_controller_or_a_group(tmp_path: Path) -> None:
    assert kills(tmp_path, "cgroup") is None
    assert kills(tmp_path, "systemd") is None
    assert Containment(a_spec(tmp_path), None).oom_kills() is None
