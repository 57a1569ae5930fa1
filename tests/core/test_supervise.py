"""What is asked for running jobs as a whole: one stop a job, nothing for those that are leaving (Z1, Z4, Z6)."""

from typing import Any

from hypothesis import given, settings

from gpuqueue.core.decisions import Charge, Stop, Supervision, Warn
from gpuqueue.core.model import AfterStop, Job
from gpuqueue.core.policy import LimitPolicy, Policy
from gpuqueue.core.reasons import ReasonCode, fields_of, sentence
from gpuqueue.core.snapshot import Activity, Snapshot
from gpuqueue.core.supervise import supervise
from gpuqueue.wire.states import JobState, RestartMode
from tests.builders import NOW, attempt, card, job, lease, quiet, running, snapshot
from tests.core.worlds import CANCEL, snapshots

HOUR = 3600


def decide(one: Job, *, since: int, **activity: Any) -> tuple[Supervision, ...]:
    live = attempt(one, started_at=NOW - since)
    world = snapshot(jobs=[one], attempts={one.id: live}, activity={one.id: Activity(**activity)})
    return supervise(world, Policy(limits=LimitPolicy()))


def test_time_limit_warns_once_at_nine_tenths_then_stops() -> None:
    """Z4: running time of all attempts counts."""
    one = running(asking={"limit_s": 10 * HOUR}, ran_s=5 * HOUR)
    assert decide(one, since=4 * HOUR - 1) == ()
    (warning,) = decide(one, since=4 * HOUR)
    assert isinstance(warning, Warn)
    assert (warning.kind, warning.level) == ("limit", 1)
    assert warning.text == ("ran 9h00m of its time limit of 10h00m: will be stopped in 1h00m; gq keep 1 2h extends it")
    assert decide(one, since=4 * HOUR, limit_warned=True) == ()
    (stop,) = decide(one, since=5 * HOUR, limit_warned=True)
    assert isinstance(stop, Stop)
    assert sentence(stop.reason) == "ran 10h00m, its time limit is 10h00m"


def test_keep_moves_the_limit_and_withdraws_the_warning() -> None:
    kept = running(asking={"limit_s": 10 * HOUR}, ran_s=5 * HOUR, extra_s=2 * HOUR)
    (warning,) = decide(kept, since=4 * HOUR, limit_warned=True)
    assert isinstance(warning, Warn)
    assert (warning.level, warning.text) == (0, "the time limit is 12h00m now, of which 9h00m are used")
    assert decide(kept, since=4 * HOUR) == ()


def test_one_stop_a_job_and_no_warning_beside_it() -> None:
    one = running(asking={"limit_s": HOUR})
    decisions = decide(one, since=HOUR, samples=quiet(HOUR), idle_warned=2)
    assert [(type(d), d.reason.code) for d in decisions if isinstance(d, Stop)] == [(Stop, ReasonCode.LIMIT)]
    assert len(decisions) == 1


def test_a_lost_card_requeues_its_jobs_and_no_others() -> None:
    """H1, Z6: gone is more than drained or unreadable."""
    node = [card(0, gone=True, drained="GPU is lost"), card(1, drained="cannot be read")]
    jobs = [running(1), running(2)]
    leases = [lease(jobs[0], node[0]), lease(jobs[1], node[1])]
    (stop,) = supervise(snapshot(cards=node, jobs=jobs, leases=leases), Policy())
    assert isinstance(stop, Stop)
    assert (stop.job_id, stop.after, sentence(stop.reason)) == (1, AfterStop.REQUEUE, "card 0 failed: GPU is lost")
    assert set(stop.reason.fields) == fields_of(ReasonCode.CARD_LOST)


def test_a_job_that_must_not_run_twice_ends_with_its_card() -> None:
    never = running(asking={"restart": RestartMode.NEVER})
    (stop,) = supervise(snapshot(cards=[card(0, gone=True)], jobs=[never], leases=[lease(never)]), Policy())
    assert isinstance(stop, Stop)
    assert (stop.after, stop.reason.code) == (AfterStop.STOP, ReasonCode.CARD_LOST)


def test_whoever_is_being_stopped_gets_nothing_more() -> None:
    idle = {"samples": quiet(HOUR), "idle_warned": 2}
    assert len(decide(running(), since=HOUR, **idle)) == 1
    assert decide(running(stop=CANCEL), since=HOUR, **idle) == ()
    assert decide(running(state=JobState.STOPPING, stop=CANCEL), since=HOUR, **idle) == ()
    assert decide(running(state=JobState.STARTING), since=HOUR, **idle) == ()


def test_waiting_jobs_are_not_supervised() -> None:
    assert supervise(snapshot(jobs=[job(1), job(2, state=JobState.BACKOFF)]), Policy()) == ()


@settings(max_examples=150)
@given(snapshots())
def test_supervision_of_any_node(world: Snapshot) -> None:
    """Only running jobs that nobody stops; at most one stop and one charge each; whole sentences; and who is
    stopped for overuse has grown."""
    decisions = supervise(world, Policy())
    jobs = {one.id: one for one in world.jobs}
    claims = {one.job_id: one.claim_mib for one in world.leases}
    charges = {d.job_id: d.charge_mib for d in decisions if isinstance(d, Charge)}
    held = {one.job_id: one.charge_mib for one in world.leases}
    for decision in decisions:
        assert jobs[decision.job_id].stop is None
        assert jobs[decision.job_id].state in (JobState.RUNNING, JobState.STARTING)
        if isinstance(decision, Stop):
            assert set(decision.reason.fields) == fields_of(decision.reason.code)
            assert "?" not in sentence(decision.reason)
            assert charges.get(decision.job_id, held[decision.job_id]) > claims[decision.job_id]
    for kind in (Stop, Charge):
        ids = [d.job_id for d in decisions if isinstance(d, kind)]
        assert len(ids) == len(set(ids))
    assert all(charge >= claims[id] for id, charge in charges.items())
