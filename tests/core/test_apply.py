"""What the snapshot becomes if a plan happens."""

from gpuqueue.core.apply import apply
from gpuqueue.core.model import AttemptPhase
from gpuqueue.core.plan import plan
from gpuqueue.core.policy import Policy
from gpuqueue.wire.states import JobState
from tests.builders import GIB, NOW, account, job, running, snapshot


def test_starts_take_leases_and_attempts_and_nothing_else_moves() -> None:
    again = job(2, 4 * GIB, state=JobState.BACKOFF, attempt=1, not_before=NOW)
    before = snapshot(jobs=[running(1, 4 * GIB), again, job(3, held=True)], accounts=[account(usage=7, weight=2)])
    after = apply(before, plan(before, Policy()))
    states = {one.id: (one.state, one.attempt, one.not_before) for one in after.jobs}
    assert states == {
        1: (JobState.RUNNING, 1, None),
        2: (JobState.STARTING, 2, None),
        3: (JobState.QUEUED, 0, None),
    }
    attempt = after.attempts[2]
    assert (attempt.number, attempt.phase, attempt.cards) == (2, AttemptPhase.STARTING, ("GPU-0",))
    assert (attempt.nominal_mib, attempt.held_back_mib) == (23903, 8704)  # Q8
    assert [(one.job_id, one.charge_mib, one.measured_mib) for one in after.leases] == [
        (1, 4 * GIB, 4 * GIB),
        (2, 4 * GIB, None),
    ]
    assert after.accounts["anna"].usage == 7 + 4 * GIB * 86400 // 2  # S1: claim x limit, over the weight
    assert after.now == before.now and after.cards == before.cards
