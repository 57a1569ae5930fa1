"""What running attempts did and hold: samples for the idle rules, curves and peaks for the record."""

from collections.abc import Mapping
from dataclasses import replace

from gpuqueue.core.model import Attempt, AttemptPhase, Job
from gpuqueue.core.readings import NodeReading, Probe, ProcessUse
from gpuqueue.core.snapshot import Snapshot
from gpuqueue.engine.engine import Engine
from gpuqueue.engine.observe import gpu_permille


def sample(
    engine: Engine,
    reading: NodeReading,
    uses: Mapping[tuple[int, int], ProcessUse],
    probes: Mapping[tuple[int, int], Probe],
) -> None:
    """One look at every running attempt: GPU, CPU, I/O, checkpoints."""
    now = engine.clock.second
    live = set()
    for attempt in engine.store.held_attempts():
        if attempt.phase is not AttemptPhase.RUNNING:
            continue
        key = (attempt.job_id, attempt.number)
        live.add(key)
        use = uses.get(key)
        pids = use.pids if use is not None else frozenset()
        engine.activity.record(key, now, gpu_permille(reading, attempt, pids), use)
        if key in probes:
            engine.activity.checkpoint(key, now, probes[key].progress_mark)
    engine.activity.keep_only(live)


def vram(engine: Engine, snapshot: Snapshot) -> None:
    """How much each attempt holds on its fullest card: its curve, and its peak, kept with the attempt and the job."""
    held: dict[int, int] = {}
    for lease in snapshot.leases:
        if lease.measured_mib is not None and not lease.releasing:
            held[lease.job_id] = max(held.get(lease.job_id, 0), lease.measured_mib)
    for job in snapshot.jobs:
        attempt = snapshot.attempts.get(job.id)
        held_mib = held.get(job.id)
        if attempt is not None and held_mib is not None:
            _keep(engine, job, attempt, held_mib)
    engine.curves.keep_only({(attempt.job_id, attempt.number) for attempt in snapshot.attempts.values()})


def _keep(engine: Engine, job: Job, attempt: Attempt, held_mib: int) -> None:
    at_s = max(0, engine.clock.second - attempt.started_at)
    engine.curves.record(attempt, at_s, held_mib)
    higher = held_mib > (attempt.peak_mib or 0)
    if not higher and not engine.curves.due(attempt, at_s):
        return
    engine.curves.kept(attempt, at_s)
    kept = replace(attempt, curve=engine.curves.of(attempt))
    if higher:
        kept = replace(kept, peak_mib=held_mib, peak_at_s=at_s)
    with engine.store.transaction():
        engine.store.save_attempt(kept)
        if held_mib > (job.peak_mib or 0):
            engine.store.save_job(replace(job, peak_mib=held_mib), expect=job.state)
