"""What the snapshot becomes if a plan happens: what-if and the tests' check that a plan is complete."""

from dataclasses import replace

from gpuqueue.core.decisions import Plan, Start
from gpuqueue.core.model import Attempt, AttemptPhase, Job
from gpuqueue.core.order import projected_usage
from gpuqueue.core.snapshot import Lease, Snapshot
from gpuqueue.wire.states import JobState


def lease_of(job: Job, start: Start, card: str, now: int) -> Lease:
    """What the start makes the job hold on that card: its whole claim, though nothing is allocated yet (M3)."""
    return Lease(
        job_id=job.id,
        account=job.account,
        user=job.user,
        job_class=job.ask.job_class,
        card=card,
        claim_mib=start.claim_mib,
        charge_mib=start.claim_mib,
        measured_mib=None,
        started_at=now,
    )


def apply(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The snapshot right after every start of the plan: jobs starting, leases and attempts in place, and the
    accounts' fair-share with what S1 adds as the plan goes. Nothing else changes, `now` neither."""
    jobs = {job.id: job for job in snapshot.jobs}
    attempts = dict(snapshot.attempts)
    accounts = dict(snapshot.accounts)
    leases = list(snapshot.leases)
    for start in plan.starts:
        job = jobs[start.job_id]
        jobs[job.id] = replace(
            job, state=JobState.STARTING, state_since=snapshot.now, attempt=job.attempt + 1, not_before=None
        )
        attempts[job.id] = _attempt_of(job, start, snapshot.now)
        leases += [lease_of(job, start, card, snapshot.now) for card in start.cards]
        account = accounts[job.account]
        accounts[job.account] = replace(account, usage=account.usage + projected_usage(job, account))
    return replace(snapshot, jobs=tuple(jobs.values()), attempts=attempts, accounts=accounts, leases=tuple(leases))


def _attempt_of(job: Job, start: Start, now: int) -> Attempt:
    return Attempt(
        job_id=job.id,
        number=job.attempt + 1,
        phase=AttemptPhase.STARTING,
        cards=start.cards,
        claim_mib=start.claim_mib,
        charge_mib=start.claim_mib,
        marker="",
        boot_id="",
        started_at=now,
        started_unix=0,
        nominal_mib=start.nominal_mib,
        held_back_mib=start.held_back_mib,
    )
