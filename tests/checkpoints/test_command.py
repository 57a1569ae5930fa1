"""`gq checkpoints DIR`."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from gq.checkpoints import command
from tests.checkpoints import by_hand


def test_the_table_names_the_newest_and_says_why_others_are_not_usable(tmp_path: Path) -> None:
    by_hand.hf(tmp_path, 1000)
    by_hand.hf(tmp_path, 900)
    by_hand.hf(tmp_path, 1100, finished=False)
    result = CliRunner().invoke(command, [str(tmp_path)])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["STEP", "900", "1000", "1100", "not"]
    assert lines[2].endswith("checkpoint-1000  <- newest complete")
    assert "trainer_state.json is missing" in lines[4]


def test_json_has_one_object_a_checkpoint(tmp_path: Path) -> None:
    by_hand.hf(tmp_path, 1000)
    by_hand.hf(tmp_path, 1100, finished=False)
    result = CliRunner().invoke(command, [str(tmp_path), "--json"])
    rows = json.loads(result.stdout)
    assert [(row["step"], row["complete"], row["newest"]) for row in rows] == [
        (1000, True, True),
        (1100, False, False),
    ]
    assert set(rows[0]) == {
        "path", "step", "layout", "completed_at", "size_bytes", "reason", "complete", "newest"
    }  # fmt: skip


def test_an_empty_directory_and_a_missing_one(tmp_path: Path) -> None:
    assert CliRunner().invoke(command, [str(tmp_path)]).stdout == f"No checkpoint under {tmp_path}.\n"
    missing = CliRunner().invoke(command, [str(tmp_path / "none")])
    assert missing.exit_code == 2
    assert "does not exist" in missing.output
