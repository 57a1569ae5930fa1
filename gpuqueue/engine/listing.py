"""Use case: the queue as people read it."""

from gpuqueue.core.model import Job
from gpuqueue.engine.engine import Engine


def listing(engine: Engine, *, ended: int, user: str | None) -> list[Job]:
    """What runs, by start; then what waits, in the order in which it was last considered; then up to `ended`
    jobs that have ended, newest first."""
    jobs = [job for job in engine.store.open_jobs() if user is None or job.user == user]
    considered = {job_id: place for place, job_id in enumerate(engine.plan.verdicts)}
    running = sorted((job for job in jobs if job.state.active), key=lambda job: (job.started_unix or 0, job.id))
    waiting = sorted(
        (job for job in jobs if not job.state.active),
        key=lambda job: (considered.get(job.id, len(considered)), job.id),
    )
    return running + waiting + (engine.store.ended_jobs(ended, user) if ended else [])
