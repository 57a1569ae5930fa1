"""Who is considered first (S1).

1. higher admin priority; 2. the account with the smaller fair-share; 3. of equal ones (nothing accounted for
yet) the account that holds less now; 4. within an account a job that was requeued ahead; 5. submit time;
6. id. What the plan starts adds claim × limit to its account at once, so that one account's 500 jobs do not
stand before another's one.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gpuqueue.core.fairshare import share
from gpuqueue.core.model import Job
from gpuqueue.core.snapshot import Account


def projected_usage(job: Job, account: Account) -> int:
    """What starting the job adds to its account's `usage`, if it runs to its limit."""
    return share(job.claim_mib * job.ask.cards * job.limit_s, account.weight)


@dataclass(slots=True)
class Shares:
    """Fair-share and VRAM held, by account, as they grow while a plan is made."""

    accounts: Mapping[str, Account]
    usage: dict[str, int]
    held_mib: dict[str, int]

    def started(self, job: Job) -> None:
        self.usage[job.account] += projected_usage(job, self.accounts[job.account])
        self.held_mib[job.account] += job.claim_mib * job.ask.cards


@dataclass(slots=True)
class _Lane:
    """One account's jobs in their own order; only the first competes with other accounts."""

    account: str
    jobs: list[Job]
    at: int = 0


@dataclass(slots=True)
class Queue:
    """Yields every job once, each time the first by S1 as `shares` are at that moment."""

    jobs: Iterable[Job]
    shares: Shares
    _heap: list[tuple[tuple[int, int, int, int, int], _Lane]] = field(default_factory=list)

    def __iter__(self) -> Iterator[Job]:
        lanes: dict[str, _Lane] = {}
        for job in sorted(self.jobs, key=lambda job: (-job.priority, job.requeue_rank, job.queued_at, job.id)):
            lanes.setdefault(job.account, _Lane(job.account, [])).jobs.append(job)
        for lane in lanes.values():
            self._push(lane)
        while self._heap:
            _, lane = heapq.heappop(self._heap)
            yield lane.jobs[lane.at]
            lane.at += 1  # its account's share may have grown in between
            self._push(lane)

    def _push(self, lane: _Lane) -> None:
        if lane.at == len(lane.jobs):
            return
        job = lane.jobs[lane.at]
        usage, held_mib = self.shares.usage[lane.account], self.shares.held_mib[lane.account]
        heapq.heappush(self._heap, ((-job.priority, usage, held_mib, job.queued_at, job.id), lane))
