"""Within a systemd unit: the shim makes room for controllers to reach the job's cgroup. On a real cgroup v2, whatever
controllers it has; tests/contracts has the limits themselves where systemd runs."""

import os
import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpuqueue.backends import cgroups
from gpuqueue.shim.containment import Containment
from tests.shim.harness import a_spec


@pytest.fixture
def unit() -> Iterator[Path]:
    base = cgroups.find_base()
    if base is None:
        pytest.skip("this machine, or this user, has no cgroup v2 to make directories in")
    unit = base / f"unit-{secrets.token_hex(4)}"
    unit.mkdir()
    yield unit
    for folder, _, _ in os.walk(unit, topdown=False):
        Path(folder).rmdir()


def pids(group: Path) -> list[int]:
    return [int(line) for line in (group / "cgroup.procs").read_text().split()]


@pytest.mark.parametrize("containment", ["systemd", "cgroup"])
def test_only_in_a_unit_the_shim_leaves_the_group_above_the_jobs(tmp_path: Path, unit: Path, containment: str) -> None:
    spec = replace(a_spec(tmp_path), cgroup=str(unit / "job"), containment=containment)
    shim = os.fork()
    if shim == 0:
        status = 1
        try:
            (unit / "cgroup.procs").write_text("0")
            Containment(spec, None).make_room()
            alone = pids(unit / "shim") == [os.getpid()] if containment == "systemd" else pids(unit) == [os.getpid()]
            status = 0 if alone and pids(unit / "job") == [] else 1
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(shim, 0)[1]) == 0
