"""When a blocked job starts at the latest, as far as the time limits of what runs can tell (S5)."""

from collections.abc import Sequence

from gpuqueue.core.ledger import CardLoad, Ledger
from gpuqueue.core.limits import ran_s
from gpuqueue.core.model import Job
from gpuqueue.core.quota import by_right
from gpuqueue.core.snapshot import Account, Lease, Snapshot


def releases(snapshot: Snapshot, ledger: Ledger) -> list[tuple[int, Lease]]:
    """(engine second by which it is free, lease), soonest first: a running job by its limit, one that is being
    stopped by its grace, one that has ended now."""
    jobs = {job.id: job for job in snapshot.jobs}
    ends = [(_free_by(jobs.get(lease.job_id), lease, snapshot), lease) for lease in ledger.leases()]
    return sorted(ends, key=lambda end: (end[0], end[1].job_id, end[1].card))


def _free_by(job: Job | None, lease: Lease, snapshot: Snapshot) -> int:
    if job is None or lease.releasing:
        return snapshot.now
    if job.stop is not None:
        return max(snapshot.now, job.stop.asked_at + job.stop.grace_s)
    left_s = job.limit_s - ran_s(job, snapshot.attempts.get(job.id), snapshot.now)
    return snapshot.now + max(0, left_s)


def latest_start(
    job: Job, account: Account, loads: Sequence[CardLoad], ledger: Ledger, ends: Sequence[tuple[int, Lease]]
) -> int | None:
    """The first instant at which the job could start by right on one of `loads` if nothing ended before it must
    and nobody were put before it; None if even then it could not. Leaves the ledger as it found it."""
    gone: list[Lease] = []
    found: int | None = None
    for free_by, lease in ends:
        ledger.remove(lease)
        gone.append(lease)
        if any(by_right(load, ledger, account, job.ask.job_class, job.claim_mib) for load in loads):
            found = free_by
            break
    for lease in reversed(gone):
        ledger.add(lease)
    return found
