"""Settle what the backend reports: attempts that came alive, ended, or were never started.

Level-triggered: the same code serves a tick, and the first tick after the daemon, the shim, both, or the machine
died. Unknown changes nothing: it never frees a card, never kills, never deletes.
"""

import time
from collections.abc import Mapping
from dataclasses import replace

from gpuqueue.core.admit import largest_claim_mib
from gpuqueue.core.decisions import Finish
from gpuqueue.core.model import Attempt, AttemptPhase, Job
from gpuqueue.core.readings import NodeReading, Probe, ProbeState, ProcessUse
from gpuqueue.core.reasons import Reason, ReasonCode, sentence
from gpuqueue.core.restart import AttemptEnd, after_end, own_reason
from gpuqueue.engine import enact, history
from gpuqueue.engine.autopsy import examine
from gpuqueue.engine.engine import Engine
from gpuqueue.engine.observe import account
from gpuqueue.wire.procfs import booted_unix
from gpuqueue.wire.states import JobState

Probes = Mapping[tuple[int, int], Probe]
Uses = Mapping[tuple[int, int], ProcessUse]


def probe_all(engine: Engine) -> dict[tuple[int, int], Probe]:
    return {
        (attempt.job_id, attempt.number): engine.backend.probe(attempt.job_id, attempt.number)
        for attempt in engine.store.held_attempts()
    }


def with_survivors(uses: Uses, probes: Probes) -> Mapping[tuple[int, int], ProcessUse]:
    """`uses` with what survived the kill of attempts that have ended: it is theirs as long as it lives, charged to
    their leases, and no stranger (Z3)."""
    survivors = {
        key: ProcessUse(pids=frozenset(probe.leftover_pids), cpu_ms=0, io_bytes=0)
        for key, probe in probes.items()
        if probe.leftover_pids and key not in uses
    }
    return {**uses, **survivors}


def settle(engine: Engine, reading: NodeReading, uses: Uses, probes: Probes) -> None:
    for attempt in engine.store.held_attempts():
        key = (attempt.job_id, attempt.number)
        with engine.only_this_job(attempt.job_id):
            _settle_one(engine, attempt, probes[key], reading, uses)


def _settle_one(engine: Engine, attempt: Attempt, probe: Probe, reading: NodeReading, uses: Uses) -> None:
    use = uses.get((attempt.job_id, attempt.number))
    if attempt.phase is AttemptPhase.RELEASING:
        _release(engine, attempt, probe, reading, use)
    elif probe.state is ProbeState.ABSENT and attempt.phase is AttemptPhase.STARTING:
        _not_started(engine, attempt, reading, uses)
    elif probe.state is ProbeState.ABSENT:
        # Somebody removed its run directory. It did start, so it must never start again; should its processes live,
        # their VRAM counts as foreign from now on.
        _ended(engine, attempt, Probe(state=ProbeState.EXITED, lost=True), reading, uses)
    elif probe.state is ProbeState.ALIVE:
        _alive(engine, attempt, probe)
    elif probe.state is ProbeState.EXITED:
        _ended(engine, attempt, probe, reading, uses)
        _release(engine, replace(attempt, phase=AttemptPhase.RELEASING), probe, reading, use)


def _not_started(engine: Engine, attempt: Attempt, reading: NodeReading, uses: Uses) -> None:
    """The daemon died between the lease and the shim, or the boot is over: start it now, or let it end."""
    job = engine.store.job(attempt.job_id)
    if job is None:
        return
    if attempt.boot_id != engine.boot_id:
        end = Probe(state=ProbeState.EXITED, old_boot=True, lost=True)
    elif job.stop is not None:
        end = Probe(state=ProbeState.EXITED, stopped=True)
    elif why := engine.failed_launches.pop((attempt.job_id, attempt.number), None):
        end = Probe(state=ProbeState.EXITED, failed_start=why)
    else:
        enact.launch(engine, job, attempt)
        return
    _ended(engine, attempt, end, reading, uses)


def _alive(engine: Engine, attempt: Attempt, probe: Probe) -> None:
    if attempt.phase is AttemptPhase.RUNNING or not probe.started:
        return
    job = engine.store.job(attempt.job_id)
    if job is None:
        return
    running = replace(attempt, phase=AttemptPhase.RUNNING, resumed_from=probe.resumed_from)
    state = JobState.STOPPING if job.state is JobState.STOPPING else JobState.RUNNING
    with engine.store.transaction():
        engine.store.save_attempt(running)
        engine.store.save_job(
            replace(
                job,
                state=state,
                state_since=engine.clock.second,
                resumed_from=probe.resumed_from,
            ),
            expect=job.state,
        )


def end_of(attempt: Attempt, probe: Probe, *, engine_second: int, now_unix: int) -> int:
    """When the attempt ended, as unix time. What a reboot ended left no record: it ran as long as it was observed, and
    not while the machine was off."""
    if probe.old_boot:
        return min(now_unix, attempt.started_unix + max(0, engine_second - attempt.started_at))
    return int(probe.ended_unix or now_unix)


def _ended(
    engine: Engine,
    attempt: Attempt,
    probe: Probe,
    reading: NodeReading,
    uses: Uses,
) -> None:
    """The attempt is over: record how, and let core decide what becomes of the job."""
    job = engine.store.job(attempt.job_id)
    if job is None or job.state.ended:
        return
    largest_mib = _largest_mib(engine, job)
    autopsy = examine(engine, job, attempt, probe, reading, uses, largest_mib)
    curve = engine.curves.of(attempt)
    job, attempt = _with_peak(engine, job, attempt, autopsy.held_mib)
    end = AttemptEnd(
        exit_status=probe.exit_status,
        signal=probe.signal,
        lost=probe.lost,
        failed_start=probe.failed_start,
        stop=job.stop,
        old_boot=probe.old_boot,
        newest_step=probe.progress_mark,
        resumed_from=probe.resumed_from,
        cause=autopsy.cause,
        advice=autopsy.diagnosis.advice if autopsy.diagnosis is not None else "",
        found=autopsy.headline,
        hopeless=autopsy.hopeless or _will_not_start(job, probe),
        peak_mib=max((mib for mib in (attempt.peak_mib, autopsy.needed_mib) if mib is not None), default=None),
        largest_mib=largest_mib,
    )
    now = engine.clock.second
    finish = after_end(job, end, engine.settings.policy, now)
    ended_unix = end_of(attempt, probe, engine_second=now, now_unix=int(time.time()))
    outcome = _outcome(end)
    with engine.store.transaction():
        engine.store.save_attempt(
            replace(
                attempt,
                phase=AttemptPhase.RELEASING,
                ended_unix=ended_unix,
                exit_status=probe.exit_status,
                exit_signal=probe.signal,
                outcome=outcome,
                diagnosis=autopsy.diagnosis,
                resumed_from=probe.resumed_from,
                curve=curve,
            )
        )
        enact.finish(engine, job, attempt, finish, ended_unix=ended_unix, probe=probe)
        history.keep(engine, job, attempt, finish, autopsy, probe, ended_unix)
    _announce(engine, job, attempt, finish, outcome)


def _with_peak(engine: Engine, job: Job, attempt: Attempt, held_mib: int | None) -> tuple[Job, Attempt]:
    """What it says itself that it held when it died is its peak, where no look at the card came upon as much. It is
    no more than a card has, whatever it says."""
    capacities = [card.capacity_mib for card in engine.snapshot.cards if card.uuid in attempt.cards]
    peak_mib = min([held_mib or 0, *capacities])
    if not capacities or peak_mib <= (attempt.peak_mib or 0):
        return job, attempt
    at_s = max(0, engine.clock.second - attempt.started_at)
    job = replace(job, peak_mib=max(peak_mib, job.peak_mib or 0))
    return job, replace(attempt, peak_mib=peak_mib, peak_at_s=at_s)


def _will_not_start(job: Job, probe: Probe) -> bool:
    """R5: but a job from before this boot may be early: where its command lies is still to be mounted."""
    return probe.lasting and job.submitted_unix >= booted_unix()


def _largest_mib(engine: Engine, job: Job) -> int | None:
    cards = engine.snapshot.cards
    return largest_claim_mib(job.ask, account(engine, job.account, cards)[0], cards)


def _outcome(end: AttemptEnd) -> str:
    """How the attempt ended, in one sentence."""
    if end.old_boot:
        return sentence(Reason(ReasonCode.REBOOT))
    return sentence(end.stop.reason if end.stop is not None else own_reason(end))


def _announce(engine: Engine, job: Job, attempt: Attempt, finish: Finish, outcome: str) -> None:
    text = f"job {job.id} attempt {attempt.number} ended: {outcome}"
    if finish.state is JobState.BACKOFF and finish.not_before is not None:
        text += f"; next try in {max(0, finish.not_before - engine.clock.second)} s"
    elif sentence(finish.reason) != outcome:
        text += f"; {finish.state}: {sentence(finish.reason)}"
    engine.event("ended" if finish.state.ended else "requeued", "gpuqueued", text, job.id)


def _release(engine: Engine, attempt: Attempt, probe: Probe, reading: NodeReading, use: ProcessUse | None) -> None:
    """Z3: the lease ends when nothing of the attempt is left, neither as a process nor on a card."""
    if probe.state is ProbeState.UNKNOWN:
        return
    if reading.fault is not None and attempt.cards:
        return  # cannot be measured now
    pids = set(probe.leftover_pids) | set(use.pids if use is not None else ())
    holding = sorted(
        process.pid
        for card in reading.cards
        if card.uuid in attempt.cards
        for process in card.processes or ()
        if process.pid in pids
    )
    # The store may have moved since the caller looked.
    current = next(a for a in engine.store.attempts(attempt.job_id) if a.number == attempt.number)
    if current.phase is not AttemptPhase.RELEASING:
        return
    left = sorted(set(probe.leftover_pids) | set(holding))
    if not left:
        engine.store.save_attempt(replace(current, phase=AttemptPhase.ENDED, flagged=None))
        return
    flag = (
        f"process {', '.join(map(str, left))} of job {attempt.job_id} survives SIGKILL: its VRAM stays charged, "
        "and only a reset or a reboot may free it"
    )
    if current.flagged != flag:
        engine.store.save_attempt(replace(current, flagged=flag))
        engine.event("unkillable", "gpuqueued", flag, attempt.job_id)
