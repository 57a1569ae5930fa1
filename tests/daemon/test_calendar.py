"""The nightly work of a node that is off at night."""

import os
import time
from pathlib import Path

import pytest

from gpuqueue.daemon.calendar import night_missed


@pytest.mark.parametrize(("age_h", "missed"), [(None, True), (2, False), (23, False), (25, True)])
def test_a_night_is_missed_where_no_copy_is_of_the_last_day(tmp_path: Path, age_h: int | None, missed: bool) -> None:
    old = tmp_path / "nightly-2026-01-01.db"
    old.touch()
    os.utime(old, (0, 0))
    (tmp_path / "before-migration.db").touch()  # not of a night
    if age_h is not None:
        newest = tmp_path / "nightly-2026-01-02.db"
        newest.touch()
        os.utime(newest, (time.time() - age_h * 3600,) * 2)
    assert night_missed(tmp_path) is missed


def test_a_node_without_backups_has_missed_one(tmp_path: Path) -> None:
    assert night_missed(tmp_path / "backups")
