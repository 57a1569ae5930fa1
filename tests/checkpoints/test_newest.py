"""Rule R2: the newest complete checkpoint by step, half-written and stale ones skipped with a reason."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from gpuqueue.checkpoints import find, newest
from gpuqueue.checkpoints.model import Skipped
from gpuqueue.checkpoints.newest import all_checkpoints, newest_complete
from gpuqueue.checkpoints.space import room_for_next
from tests.checkpoints import by_hand


def reasons(root: Path, **how: object) -> dict[str, str]:
    skipped = newest_complete(root, **how).skipped  # type: ignore[arg-type]
    return {Path(one.path).name: one.reason for one in skipped}


def test_the_step_is_compared_as_a_number(tmp_path: Path) -> None:
    for step in (100, 900, 1000):
        by_hand.hf(tmp_path, step)
    found = newest_complete(tmp_path)
    assert found.checkpoint is not None
    assert found.checkpoint.path == str(tmp_path / "checkpoint-1000")
    assert (found.checkpoint.step, found.checkpoint.layout) == (1000, "hf")
    assert found.skipped == ()
    assert [verdict.step for verdict in all_checkpoints(tmp_path)] == [100, 900, 1000]


def test_scenario_20_and_21_half_written_is_skipped_and_last_weeks_is_ignored(tmp_path: Path) -> None:
    start = time.time()
    for step in (900, 1000):
        by_hand.hf(tmp_path, step)
    by_hand.hf(tmp_path, 1100, finished=False)
    by_hand.aged(by_hand.hf(tmp_path, 9000), start - 7 * 86400)
    found = newest_complete(tmp_path, since=start)
    assert found.checkpoint is not None
    assert found.checkpoint.step == 1000
    assert found.checkpoint.completed_at >= int(start)
    assert [one.step for one in found.skipped] == [9000, 1100]
    assert reasons(tmp_path, since=start)["checkpoint-9000"] == "older than this job"
    assert "save was not finished" in reasons(tmp_path, since=start)["checkpoint-1100"]
    assert newest_complete(tmp_path).checkpoint.step == 9000  # type: ignore[union-attr]


def test_completion_is_the_time_of_the_file_written_last(tmp_path: Path) -> None:
    folder = by_hand.aged(by_hand.hf(tmp_path, 5), 1000)
    os.utime(folder / "trainer_state.json", (2000, 2000))
    os.utime(folder / "config.json", (3000, 3000))
    assert newest_complete(tmp_path).checkpoint.completed_at == 2000  # type: ignore[union-attr]
    assert newest_complete(tmp_path, since=2000.9).checkpoint is not None, "file systems may keep whole seconds"
    assert newest_complete(tmp_path, since=2001).checkpoint is None


def test_r4_an_excluded_path_is_passed_over(tmp_path: Path) -> None:
    by_hand.hf(tmp_path, 900)
    bad = by_hand.hf(tmp_path, 1000)
    found = newest_complete(tmp_path, exclude=[f"{tmp_path}/./checkpoint-1000/"])
    assert found.checkpoint is not None
    assert found.checkpoint.step == 900
    assert found.skipped == (Skipped(str(bad), 1000, "passed over: attempts that started from it failed"),)


@pytest.mark.parametrize("below", ["output/v2-20260101-101010", "a/b/c"])
def test_checkpoints_some_levels_down_are_found(tmp_path: Path, below: str) -> None:
    by_hand.hf(tmp_path / below, 10)
    assert newest_complete(tmp_path).checkpoint.path == str(tmp_path / below / "checkpoint-10")  # type: ignore[union-attr]


def test_a_stage_with_a_number_in_its_name_is_looked_into(tmp_path: Path) -> None:
    by_hand.hf(tmp_path / "step2_dpo", 10)
    by_hand.hf(tmp_path / "step1_sft", 30)
    assert [verdict.step for verdict in all_checkpoints(tmp_path)] == [10, 30]


def test_a_relative_directory_gives_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_hand.hf(tmp_path / "out", 10)
    monkeypatch.chdir(tmp_path)
    assert newest_complete("out").checkpoint.path == str(tmp_path / "out" / "checkpoint-10")  # type: ignore[union-attr]


def test_a_directory_that_does_not_exist_is_said_to_be_missing(tmp_path: Path) -> None:
    found = newest_complete(tmp_path / "none")
    assert found.checkpoint is None
    assert found.skipped == (Skipped(str(tmp_path / "none"), None, "there is no such directory"),)


def test_a_file_in_place_of_the_directory_is_said(tmp_path: Path) -> None:
    path = by_hand.write(tmp_path / "file", "x")
    assert "cannot be read" in newest_complete(path).skipped[0].reason


def test_an_unreadable_directory_is_said(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads every directory")
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    by_hand.hf(tmp_path, 10)
    found = newest_complete(tmp_path)
    closed.chmod(0o700)
    assert found.checkpoint is not None
    assert [one.path for one in found.skipped] == [str(closed)]


def test_a_directory_with_too_many_names_is_looked_at_in_part_and_that_is_said(tmp_path: Path) -> None:
    for number in range(60):
        by_hand.write(tmp_path / "samples" / f"sample-{number}.txt", "")
    by_hand.hf(tmp_path, 10)
    found = find.find(str(tmp_path), most=50)
    assert [Path(candidate.path).name for candidate in found.candidates] == ["checkpoint-10"]
    assert found.troubles == [(str(tmp_path / "samples"), "it holds too much: looking stopped after 50 names")]
    assert find.find(str(tmp_path)).troubles == []


def test_only_so_many_checkpoints_are_checked_and_that_is_said(tmp_path: Path) -> None:
    for number in range(newest.MAX_JUDGED + 5):
        (tmp_path / f"checkpoint-{number}").mkdir()
    found = newest_complete(tmp_path)
    assert found.checkpoint is None
    assert len(found.skipped) == newest.MAX_JUDGED + 1
    assert found.skipped[-1].reason == f"only the newest {newest.MAX_JUDGED} checkpoints were checked"


def test_loops_of_links_end(tmp_path: Path) -> None:
    by_hand.hf(tmp_path / "run", 10)
    (tmp_path / "run" / "again").symlink_to(tmp_path / "run")
    (tmp_path / "latest").symlink_to(tmp_path / "run" / "checkpoint-10")
    assert [verdict.step for verdict in all_checkpoints(tmp_path)] == [10]


def test_a_checkpoint_that_is_a_link_to_scratch_counts(tmp_path: Path) -> None:
    real = by_hand.hf(tmp_path / "scratch", 10)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "checkpoint-10").symlink_to(real)
    assert newest_complete(tmp_path / "out").checkpoint.path == str(tmp_path / "out" / "checkpoint-10")  # type: ignore[union-attr]


def test_a_file_that_its_elder_has_is_missed(tmp_path: Path) -> None:
    by_hand.hf(tmp_path, 900)
    newer = by_hand.hf(tmp_path, 1000)
    (newer / "config.json").unlink()
    assert newest_complete(tmp_path).checkpoint.step == 900  # type: ignore[union-attr]
    assert reasons(tmp_path)["checkpoint-1000"] == "config.json is missing, or one like it: checkpoint-900 has it"


def test_an_elder_of_an_earlier_run_is_no_measure(tmp_path: Path) -> None:
    start = time.time()
    by_hand.aged(by_hand.hf(tmp_path, 900), start - 3600)
    (by_hand.hf(tmp_path, 1000) / "config.json").unlink()
    assert newest_complete(tmp_path, since=start).checkpoint.step == 1000  # type: ignore[union-attr]


def test_reports_come_and_go(tmp_path: Path) -> None:
    by_hand.write(by_hand.hf(tmp_path, 900) / "eval_results.json", "{}")
    by_hand.hf(tmp_path, 1000)
    assert newest_complete(tmp_path).checkpoint.step == 1000  # type: ignore[union-attr]


def test_a_lost_rank_is_missed_by_count(tmp_path: Path) -> None:
    for step in (900, 1000):
        folder = by_hand.hf(tmp_path, step)
        for rank in range(2):
            by_hand.torch_zip(folder / f"rng_state_{rank}.pth")
    (tmp_path / "checkpoint-1000" / "rng_state_1.pth").unlink()
    assert newest_complete(tmp_path).checkpoint.step == 900  # type: ignore[union-attr]


def test_a_checkpoint_that_vanishes_meanwhile_is_no_error(tmp_path: Path) -> None:
    by_hand.hf(tmp_path, 900)
    gone = by_hand.hf(tmp_path, 1000)
    candidates = find.find(str(tmp_path)).candidates
    shutil.rmtree(gone)
    verdicts = {Path(c.path).name: newest.judge(c, None, ()).reason for c in candidates}
    assert verdicts["checkpoint-900"] is None
    assert "cannot be read" in str(verdicts["checkpoint-1000"])


def test_polling_reads_a_changed_file_again(tmp_path: Path) -> None:
    folder = by_hand.hf(tmp_path, 10)
    assert newest_complete(tmp_path).checkpoint is not None
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    assert newest_complete(tmp_path).checkpoint is None
    weights.write_bytes(whole)
    assert newest_complete(tmp_path).checkpoint is not None


def test_fifty_checkpoints_are_polled_in_no_time(tmp_path: Path) -> None:
    for step in range(100, 5100, 100):
        folder = by_hand.hf(tmp_path, step)
        # A sparse file of 8 GiB: only its header may be read.
        header = (folder / "model.safetensors").read_bytes()[8:]
        text = header[: header.rindex(b"}") + 1].replace(b"[16, 32]", b"[16, 8589934592]")
        with (folder / "model.safetensors").open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.truncate(8 + len(text) + 8589934592)
    read_before = _bytes_read()
    found = newest_complete(tmp_path)
    assert found.checkpoint is not None
    assert found.checkpoint.step == 5000
    assert found.checkpoint.size_bytes > 8 << 30
    assert _bytes_read() - read_before < 8 << 20


def _bytes_read() -> int:
    """By this process so far, from the page cache or not (proc(5))."""
    return int(Path("/proc/self/io").read_text().partition("rchar: ")[2].split()[0])


def test_room_for_the_next_save(tmp_path: Path) -> None:
    by_hand.hf(tmp_path, 10)
    assert room_for_next(tmp_path, newest_complete(tmp_path)) is None
    free = shutil.disk_usage(tmp_path).free
    big = by_hand.write(tmp_path / "step_20.bin", "")
    header = by_hand.safetensors(tmp_path / "step_20.safetensors", count=1)
    big.unlink()
    text = header.read_bytes()[8:-16].replace(b"[0, 16]", b"[0, %d]" % free)
    with header.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + free)
    warning = room_for_next(tmp_path, newest_complete(tmp_path))
    assert warning is not None
    assert warning.startswith("low disk space")
    assert room_for_next(tmp_path, newest_complete(tmp_path / "none")) is None


def test_an_unreadable_file_is_said_and_tried_again(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads every file")
    weights = by_hand.hf(tmp_path, 10) / "model.safetensors"
    weights.chmod(0)
    assert reasons(tmp_path)["checkpoint-10"] == "it cannot be read: Permission denied"
    weights.chmod(0o600)
    assert newest_complete(tmp_path).checkpoint is not None
