"""What running attempts did and hold: samples for the idle rules, peaks for the record."""

from collections.abc import Mapping
from dataclasses import replace

from gpuqueue.core.model import AttemptPhase
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


def peaks(engine: Engine, snapshot: Snapshot) -> None:
    """The most that each attempt was seen to hold on one card, kept with the attempt and the job."""
    held: dict[int, int] = {}
    for lease in snapshot.leases:
        if lease.measured_mib is not None and not lease.releasing:
            held[lease.job_id] = max(held.get(lease.job_id, 0), lease.measured_mib)
    for job in snapshot.jobs:
        attempt = snapshot.attempts.get(job.id)
        peak_mib = held.get(job.id)
        if attempt is None or not peak_mib or peak_mib <= (attempt.peak_mib or 0):
            continue
        with engine.store.transaction():
            engine.store.save_attempt(replace(attempt, peak_mib=peak_mib))
            if peak_mib > (job.peak_mib or 0):
                engine.store.save_job(replace(job, peak_mib=peak_mib), expect=job.state)
