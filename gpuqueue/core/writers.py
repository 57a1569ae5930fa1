"""Whose a checkpoint directory is (R2): of one user's jobs, one at a time saves into it.

Nothing tells whose a checkpoint is but where it lies and when it was made. Two jobs that save into one directory
would resume from each other's, and each would count the other's as progress of its own, so that a crash loop is
never seen (R3). Jobs of other users do not wait: whoever named a colleague's directory could keep his jobs out.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gpuqueue.core.model import Job
from gpuqueue.core.reasons import Reason, ReasonCode
from gpuqueue.wire.states import WAITING_STATES

Directory = tuple[int, str]  # (uid, path)


def saves_into(job: Job) -> Directory | None:
    """What one job at a time has: its checkpoint directory, as its user's. None for a job that names none."""
    return None if job.ask.checkpoint_dir is None else (job.uid, job.ask.checkpoint_dir)


@dataclass(slots=True)
class Writers:
    """The job that each directory belongs to, from its first attempt until it has ended."""

    by_directory: dict[Directory, Job]

    @classmethod
    def of(cls, jobs: Iterable[Job]) -> "Writers":
        """Of several begun ones, as after `gq requeue`, one that runs is before one that waits, then the older."""
        begun = [job for job in jobs if job.attempt and (job.state.active or job.state in WAITING_STATES)]
        writers = cls({})
        for job in sorted(begun, key=lambda job: (not job.state.active, job.id)):
            writers.started(job)
        return writers

    def started(self, job: Job) -> None:
        if mine := saves_into(job):
            self.by_directory.setdefault(mine, job)

    def in_the_way(self, job: Job) -> Reason | None:
        """The verdict on a job whose directory another one saves into; None where it is free, or its own."""
        mine = saves_into(job)
        writer = self.by_directory.get(mine) if mine else None
        if writer is None or writer.id == job.id:
            return None
        return Reason(ReasonCode.CHECKPOINTS, {"writer": writer.id, "writer_account": writer.account})
