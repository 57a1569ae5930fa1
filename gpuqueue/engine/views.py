"""What people see of a job, a card, the node: views made from the snapshot, never stored."""

import socket
import time
from dataclasses import replace

from gpuqueue.core.curve import growth_mib_per_hour
from gpuqueue.core.limits import ran_s
from gpuqueue.core.model import Attempt, AttemptPhase, Job
from gpuqueue.core.overuse import over_claim
from gpuqueue.core.reasons import Reason, sentence
from gpuqueue.core.snapshot import Card
from gpuqueue.engine.callers import Caller
from gpuqueue.engine.engine import Engine
from gpuqueue.version import __version__
from gpuqueue.wire.jobs import (
    AttemptView,
    CardView,
    JobDetail,
    JobView,
    NodeView,
    StrangerView,
    SubmitRequest,
    TenantView,
)
from gpuqueue.wire.states import WAITING_STATES, JobClass, JobState
from gpuqueue.wire.units import format_mib, format_seconds

API_VERSION = 1
EVENTS_SHOWN = 40


def job_view(engine: Engine, job: Job, caller: Caller) -> JobView:
    attempt = engine.snapshot.attempts.get(job.id)
    reason_code, reason = _reason(engine, job)
    used = [lease.measured_mib for lease in engine.snapshot.leases if lease.job_id == job.id and not lease.releasing]
    known = [mib for mib in used if mib is not None]
    expected = engine.plan.expected_at.get(job.id) if job.state is JobState.QUEUED else None
    return JobView(
        id=job.id,
        name=job.name,
        user=job.user,
        account=job.account,
        job_class=job.ask.job_class,
        state=job.state,
        reason=reason,
        reason_code=reason_code,
        vram_mib=_claim_mib(job, attempt),
        cards=_indexes(engine, attempt) if job.state.active else [],
        gpus=job.ask.cards,
        attempt=job.attempt,
        restarts=job.restarts.total,
        used_vram_mib=max(known) if known and len(known) == len(used) else None,
        peak_vram_mib=job.peak_mib,
        borrowed_mib=0,
        exit_code=exit_code(job.exit_status, job.exit_signal) if job.state.ended else None,
        resumed_from=job.resumed_from,
        submitted_at=job.submitted_unix,
        started_at=job.started_unix,
        ended_at=job.ended_unix,
        state_s=max(0, engine.clock.second - job.state_since),
        ran_s=ran_s(job, attempt, engine.clock.second),
        limit_s=job.limit_s,
        command="" if engine.settings.hide_commands and not caller.may_touch(job) else job.command,
        expected_start_at=None if expected is None else int(time.time()) + expected - engine.clock.second,
        wait_status=wait_status(job) if job.state.ended else None,
    )


def _claim_mib(job: Job, attempt: Attempt | None) -> int:
    """What it holds, or waits for: more than was asked for once it grew (O1, R5)."""
    if attempt is not None:
        return attempt.claim_mib
    return job.ask.claim_mib if job.state.ended else job.claim_mib


def exit_code(status: int | None, number: int | None) -> int | None:
    """The status as a shell shows it: 128 + n after signal n."""
    return 128 + number if number is not None else status


def wait_status(job: Job) -> int:
    """What `gq wait` exits with: the job's own status; 124 where gpuqueue ended it; 125 where there is none."""
    if job.state in (JobState.CANCELLED, JobState.STOPPED):
        return 124
    code = exit_code(job.exit_status, job.exit_signal)
    if job.state is JobState.SUCCEEDED:
        return 0
    return 125 if code is None else code


def _reason(engine: Engine, job: Job) -> tuple[str, str]:
    """(code, sentence): why it waits, why it is being stopped, what it was warned of (I3, O1), or why it ended."""
    reason: Reason | None = job.reason
    if job.state in WAITING_STATES:
        reason = engine.plan.verdicts.get(job.id, job.reason)
    elif job.stop is not None:
        reason = job.stop.reason
    elif job.state.active:
        if warned := engine.activity.warning((job.id, job.attempt)):
            return warned
        own = (lease for lease in engine.snapshot.leases if lease.job_id == job.id)
        over = next((lease for lease in own if lease.charge_mib > lease.claim_mib), None)
        reason = over_claim(over.claim_mib, over.charge_mib) if over is not None else None
    return (str(reason.code), sentence(reason)) if reason is not None else ("", "")


def _indexes(engine: Engine, attempt: Attempt | None) -> list[int]:
    index = {card.uuid: card.index for card in engine.snapshot.cards}
    return [index[uuid] for uuid in attempt.cards if uuid in index] if attempt is not None else []


def job_detail(engine: Engine, job: Job, caller: Caller) -> JobDetail:
    request = engine.store.request(job.id)
    own = caller.may_touch(job)
    return JobDetail(
        job=job_view(engine, job, caller),
        attempts=[_attempt_view(engine, attempt, own) for attempt in engine.store.attempts(job.id)],
        events=engine.store.events(-1, EVENTS_SHOWN, job.id),
        settings=_settings(job, request) if request is not None and own else {},
        checkpoint=engine.backend.probe(job.id, job.attempt).checkpoint if own and job.attempt else None,
        log_path=engine.backend.log_path(job.id, job.attempt) if own and job.attempt else None,
        estimate=request.estimate if request is not None and own else None,
    )


def _attempt_view(engine: Engine, attempt: Attempt, own: bool) -> AttemptView:
    curve = engine.curves.of(attempt)
    diagnosis = attempt.diagnosis
    if diagnosis is not None and not own:
        diagnosis = replace(diagnosis, evidence="")  # a line of the log, which is its owner's (A2)
    live = {AttemptPhase.STARTING: "starting", AttemptPhase.RUNNING: "running"}
    return AttemptView(
        number=attempt.number,
        cards=_indexes(engine, attempt),
        started_at=attempt.started_unix,
        ended_at=attempt.ended_unix,
        exit_code=exit_code(attempt.exit_status, attempt.exit_signal),
        outcome=attempt.outcome or live.get(attempt.phase, ""),
        resumed_from=attempt.resumed_from,
        peak_vram_mib=attempt.peak_mib,
        diagnosis=diagnosis,
        peak_at_s=attempt.peak_at_s,
        growth_mib_per_hour=growth_mib_per_hour(curve),
        curve=list(curve),
        torch=engine.backend.torch_peak(attempt.job_id, attempt.number),
    )


def _settings(job: Job, request: SubmitRequest) -> dict[str, str]:
    """What was asked for, without the environment, which no view shows (J1)."""
    ask = job.ask
    settings = {
        "directory": request.cwd,
        "vram": f"{format_mib(ask.claim_mib)} per card" if ask.cards > 1 else format_mib(ask.claim_mib),
        "restart": str(ask.restart),
        "time limit": format_seconds(job.limit_s),
        "stop": f"{ask.stop_signal}, then {format_seconds(ask.grace_s)} of grace",
    }
    optional = {
        "gpu type": ask.gpu_type,
        "gpu": ",".join(map(str, ask.gpu_indexes)),
        "checkpoints": request.checkpoint_dir,
        "checkpoint command": request.checkpoint_command,
        "resume": request.resume,
        "resume argument": request.resume_arg,
        "host memory": format_mib(request.mem_mib) if request.mem_mib else None,
        "cpus": str(request.cpus) if request.cpus else None,
        "interactive": "yes" if ask.interactive else None,
        "grow": "yes" if ask.grow else None,
        "cap": "yes" if request.cap else None,
        "kept": f"{format_seconds(job.extra_s)} longer" if job.extra_s else None,
    }
    return settings | {label: value for label, value in optional.items() if value}


def card_views(engine: Engine) -> list[CardView]:
    return [_card_view(engine, card) for card in sorted(engine.snapshot.cards, key=lambda card: card.index)]


def _card_view(engine: Engine, card: Card) -> CardView:
    leases = [lease for lease in engine.snapshot.leases if lease.card == card.uuid]
    light = sum(lease.charge_mib for lease in leases if lease.job_class is JobClass.LIGHT)
    charged = sum(lease.charge_mib for lease in leases)
    free = max(0, card.capacity_mib - charged - card.foreign_mib)
    return CardView(
        index=card.index,
        uuid=card.uuid,
        name=card.name,
        pci_bus_id=card.pci_bus_id,
        simulated=engine.cards.simulated,
        capacity_mib=card.capacity_mib,
        held_back_mib=card.held_back_mib,
        charged_mib=charged,
        foreign_mib=card.foreign_mib,
        used_mib=card.used_mib,
        free_to_claim_mib=free,
        free_for_train_mib=max(0, free - max(0, card.held_back_mib - light)),
        gpu_percent=card.gpu_percent,
        temperature_c=card.temperature_c,
        context_mib=engine.contexts_mib.get(card.uuid),
        drained=card.drained,
        notes=list(card.notes),
        tenants=[
            TenantView(
                job_id=lease.job_id,
                user=lease.user,
                account=lease.account,
                job_class=lease.job_class,
                claim_mib=lease.claim_mib,
                charge_mib=lease.charge_mib,
                used_mib=lease.measured_mib,
            )
            for lease in sorted(leases, key=lambda lease: lease.job_id)
        ],
        strangers=[
            StrangerView(pid=stranger.pid, user=stranger.user, command=stranger.command, used_mib=stranger.used_mib)
            for stranger in card.strangers
        ],
    )


def node_view(engine: Engine, caller: Caller, pid: int) -> NodeView:
    jobs = engine.snapshot.jobs
    return NodeView(
        version=__version__,
        api=API_VERSION,
        simulated=engine.cards.simulated,
        host=socket.gethostname(),
        boot_id=engine.boot_id,
        pid=pid,
        user=caller.user,
        account=caller.user,
        admin=caller.admin,
        containment=engine.backend.containment,
        cards=card_views(engine),
        queued=sum(1 for job in jobs if not job.state.active),
        running=sum(1 for job in jobs if job.state.active),
        fault=engine.broken.message if engine.broken is not None else None,
    )
