"""I1-I4: who is idle, who is only stalled, and what is said before anything is stopped."""

from dataclasses import replace
from typing import Any

import pytest

from gpuqueue.core.decisions import Stop, Warn
from gpuqueue.core.idle import judge
from gpuqueue.core.model import AfterStop
from gpuqueue.core.policy import IdlePolicy, Mode
from gpuqueue.core.reasons import ReasonCode, fields_of, sentence
from gpuqueue.core.snapshot import Activity, Sample
from gpuqueue.wire.states import JobClass
from tests.builders import NOW, account, quiet, running

MINUTE = 60
WINDOW = 30 * MINUTE


def decide(samples: tuple[Sample, ...], *, policy: IdlePolicy | None = None, **activity: Any) -> Stop | Warn | None:
    return judge(running(), account(), Activity(samples=samples, **activity), policy or IdlePolicy(), NOW)


@pytest.mark.parametrize(
    "idle_s, warned, level",
    [
        (WINDOW // 2 - 10, 0, None),
        (WINDOW // 2, 0, 1),
        (WINDOW // 2, 1, None),
        (WINDOW * 8 // 10 - 10, 1, None),
        (WINDOW * 8 // 10, 1, 2),
        (WINDOW * 8 // 10, 2, None),
        (WINDOW, 0, 1),  # both warnings precede the stop, also where the window was jumped
        (WINDOW, 1, 2),
    ],
)
def test_warned_at_half_and_four_fifths(idle_s: int, warned: int, level: int | None) -> None:
    """I3."""
    decision = decide(quiet(idle_s), idle_warned=warned)
    assert (decision.level if isinstance(decision, Warn) else decision) == level


def test_warning_names_the_deadline() -> None:
    decision = decide(quiet(WINDOW // 2))
    assert isinstance(decision, Warn)
    assert decision.text == (
        "idle for 15m00s: GPU 0.0 %, 0.00 CPU cores, 0 KiB/s of I/O on average; limit 30m00s: "
        "will be stopped in 15m00s unless it works; gq keep 1 2h holds that off"
    )


def test_stopped_at_the_window_after_both_warnings() -> None:
    decision = decide(quiet(WINDOW), idle_warned=2)
    assert isinstance(decision, Stop)
    assert (decision.reason.code, decision.after, decision.grace_s) == (ReasonCode.IDLE, AfterStop.STOP, None)
    assert set(decision.reason.fields) == fields_of(ReasonCode.IDLE)
    assert sentence(decision.reason) == (
        "idle for 30m00s: GPU 0.0 %, 0.00 CPU cores, 0 KiB/s of I/O on average; limit 30m00s"
    )


def test_scenario_15_a_tiny_kernel_does_not_reset_the_window() -> None:
    """I1: one second at 100 % within the window is under 3 % on average."""
    kernel = quiet(10, until=NOW - 600, gpu_permille=100)  # 1 s of 10 busy
    samples = (*quiet(WINDOW - 610, until=NOW - 610), *kernel, *quiet(600))
    assert isinstance(decide(samples, idle_warned=2), Stop)


@pytest.mark.parametrize(
    "busy", [{"gpu_permille": 30}, {"cpu_millicores": 500}, {"io_kib_s": 1024}, {"gpu_permille": None}]
)
def test_at_a_threshold_it_is_not_idle(busy: dict[str, Any]) -> None:
    """I1: under 3 %, under half a core, under 1 MiB/s; a download is work; what cannot be read is not guessed."""
    assert not isinstance(decide(quiet(WINDOW, **busy), idle_warned=2), Stop)


def test_work_that_has_resumed_is_seen_within_the_window() -> None:
    """Two idle hours do not outweigh the last minute at full use."""
    samples = (*quiet(7200, until=NOW - 60), *quiet(60, gpu_permille=1000))
    decision = decide(samples, idle_warned=2)
    assert isinstance(decision, Warn)
    assert (decision.kind, decision.level) == ("idle", 0)
    assert decide(samples, idle_warned=0) is None


def test_a_new_checkpoint_starts_the_window_again() -> None:
    assert isinstance(decide(quiet(2 * WINDOW), idle_warned=2, checkpoint_at=NOW - WINDOW), Stop)
    assert not isinstance(decide(quiet(2 * WINDOW), idle_warned=2, checkpoint_at=NOW - WINDOW + 10), Stop)


def test_a_gap_starts_the_window_again() -> None:
    """Z5: the engine hands over what it observed since; less than a window stops nobody."""
    assert not isinstance(decide(quiet(WINDOW - 10), idle_warned=2), Stop)
    assert not isinstance(decide((), idle_warned=2), Stop)


@pytest.mark.parametrize(
    "asking, job_class, window_s",
    [({}, JobClass.LIGHT, 4 * 3600), ({"interactive": True}, JobClass.TRAIN, 3600)],
)
def test_light_and_interactive_jobs_have_their_own_windows(
    asking: dict[str, Any], job_class: JobClass, window_s: int
) -> None:
    """I4."""
    job = running(asking=asking, job_class=job_class)
    for seconds, stopped in ((window_s - 10, False), (window_s, True)):
        decision = judge(job, account(), Activity(samples=quiet(seconds), idle_warned=2), IdlePolicy(), NOW)
        assert isinstance(decision, Stop) is stopped


def test_exempt_kept_and_cardless_jobs_are_left_alone() -> None:
    """I4, Z4, P2."""
    activity = Activity(samples=quiet(2 * WINDOW), idle_warned=2)
    policy = IdlePolicy(exempt_accounts=frozenset({"ben"}))
    assert judge(running(), account(idle_exempt=True), activity, policy, NOW) is None
    assert judge(running(user="ben"), account("ben"), activity, policy, NOW) is None
    assert judge(running(claim_mib=0), account(), activity, policy, NOW) is None
    assert judge(running(idle_exempt_until=NOW + 1), account(), activity, policy, NOW) is None
    kept = running(idle_exempt_until=NOW - WINDOW + 10)
    assert not isinstance(judge(kept, account(), activity, policy, NOW), Stop)
    assert isinstance(judge(replace(kept, idle_exempt_until=NOW - WINDOW), account(), activity, policy, NOW), Stop)


def test_report_mode_says_it_once_and_stops_nothing() -> None:
    """I4."""
    policy = IdlePolicy(mode=Mode.REPORT)
    assert decide(quiet(WINDOW - 10), policy=policy) is None
    decision = decide(quiet(WINDOW), policy=policy)
    assert isinstance(decision, Warn)
    assert decision.text.startswith("report only, would have been stopped: idle for 30m00s")
    assert decide(quiet(WINDOW), policy=policy, idle_warned=decision.level) is None


BUSY_HOST: dict[str, Any] = {"cpu_millicores": 3900, "io_kib_s": 20 * 1024}


def test_busy_host_with_an_idle_gpu_is_stalled_not_idle() -> None:
    """I2: said at 15 minutes, once, and not stopped unless the admin asks."""
    assert decide(quiet(15 * MINUTE - 10, **BUSY_HOST)) is None
    decision = decide(quiet(15 * MINUTE, **BUSY_HOST))
    assert isinstance(decision, Warn)
    assert (decision.kind, decision.level) == ("stalled", 1)
    assert "GPU at 0.0 % for 15m00s while 3.90 CPU cores and 20 MiB/s of I/O are busy" in decision.text
    assert decide(quiet(9 * 3600, **BUSY_HOST), stalled_warned=True) is None


def test_stalled_is_stopped_where_the_admin_asks() -> None:
    policy = IdlePolicy(stalled_stop_s=4 * 3600)
    assert decide(quiet(4 * 3600 - 10, **BUSY_HOST), policy=policy, stalled_warned=True) is None
    decision = decide(quiet(4 * 3600, **BUSY_HOST), policy=policy, stalled_warned=True)
    assert isinstance(decision, Stop)
    assert decision.reason.code is ReasonCode.STALLED
    assert set(decision.reason.fields) == fields_of(ReasonCode.STALLED)
    report = replace(policy, mode=Mode.REPORT)
    assert decide(quiet(4 * 3600, **BUSY_HOST), policy=report, stalled_warned=True) is None
