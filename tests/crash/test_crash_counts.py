"""A few rounds of the crash trial: nothing is lost, nothing runs twice, every status is true or said to be lost."""

from pathlib import Path

import pytest

from tests.crash.trial import trial

ROUNDS = 8


@pytest.mark.crash
@pytest.mark.timeout(600)
def test_daemons_and_shims_killed_at_random_moments(open_path: Path) -> None:
    outcome = trial(open_path, "a few rounds", ROUNDS)
    assert outcome.violations == []
    assert outcome.kills.daemon >= ROUNDS
    assert (outcome.kills.shim, outcome.kills.both) == (ROUNDS // 4, 1)
    assert outcome.kills.in_transition >= ROUNDS // 2
    assert outcome.counts["true"] > 0
    assert (outcome.counts["false"], outcome.counts["run twice"]) == (0, 0)
