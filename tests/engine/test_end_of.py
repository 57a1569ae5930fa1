"""When an attempt ended, where nobody wrote it down."""

import pytest

from gpuqueue.core.readings import Probe, ProbeState
from gpuqueue.engine.settle import end_of
from tests.builders import attempt, job

STARTED_UNIX, STARTED, WEEKEND_S = 1_700_000_000, 5_000, 2 * 86400


@pytest.mark.parametrize(
    ("known", "observed_s", "now_unix", "ended_after_s"),
    [
        ({"old_boot": True, "lost": True}, 600, STARTED_UNIX + WEEKEND_S, 600),  # the machine was off meanwhile
        ({"old_boot": True, "lost": True}, 0, STARTED_UNIX + WEEKEND_S, 0),
        ({"old_boot": True, "lost": True}, 600, STARTED_UNIX + 60, 60),  # the clock was set back
        ({"exit_status": 0, "ended_unix": STARTED_UNIX + 30.7}, 600, STARTED_UNIX + WEEKEND_S, 30),
        ({"lost": True}, 600, STARTED_UNIX + 700, 700),
    ],
)
def test_what_a_reboot_ended_ran_as_long_as_it_was_seen(
    known: dict[str, object], observed_s: int, now_unix: int, ended_after_s: int
) -> None:
    one = attempt(job(), started_at=STARTED, started_unix=STARTED_UNIX)
    probe = Probe(state=ProbeState.EXITED, **known)  # type: ignore[arg-type]
    ended = end_of(one, probe, engine_second=STARTED + observed_s, now_unix=now_unix)
    assert ended - STARTED_UNIX == ended_after_s
