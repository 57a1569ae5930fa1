"""Observe: from the readings of this instant and the store to one Snapshot (rules M2-M4, Q1, F1)."""

import logging
import pwd
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpuqueue.core.capacity import capacity_mib, foreign_mib, held_back_mib
from gpuqueue.core.fairshare import decayed, share
from gpuqueue.core.model import Attempt, AttemptPhase, Job
from gpuqueue.core.quota import resolve
from gpuqueue.core.readings import CardReading, NodeReading, ProcessUse
from gpuqueue.core.snapshot import Account, Card, Lease, Snapshot, Stranger
from gpuqueue.engine.callers import database_groups, group_names
from gpuqueue.engine.engine import Engine

log = logging.getLogger(__name__)

Uses = Mapping[tuple[int, int], ProcessUse]


def observe(engine: Engine, reading: NodeReading, uses: Uses) -> Snapshot:
    """All that is known now. Nothing is guessed: what the driver hides is None, what it cannot read is a fault."""
    engine.reading = reading
    jobs = engine.store.open_jobs()
    attempts = engine.store.held_attempts()
    owners = {job.id: job for job in jobs}
    for attempt in attempts:  # a lease may outlive its job (Z3)
        if attempt.job_id not in owners:
            job = engine.store.job(attempt.job_id)
            if job is not None:
                owners[job.id] = job
    measured = _measured(reading, attempts, uses)
    leases = _leases(attempts, owners, measured)
    cards = tuple(_card(engine, card, leases, attempts, uses) for card in reading.cards)
    live = {
        attempt.job_id: attempt
        for attempt in attempts
        if attempt.phase in (AttemptPhase.STARTING, AttemptPhase.RUNNING)
    }
    return Snapshot(
        now=engine.clock.second,
        cards=cards,
        jobs=tuple(jobs),
        attempts=live,
        leases=leases,
        accounts={name: account(engine, name, cards)[0] for name in sorted({job.account for job in owners.values()})},
        activity={job_id: engine.activity.of((job_id, attempt.number)) for job_id, attempt in live.items()},
        cards_fault=reading.fault,
    )


def account(engine: Engine, name: str, cards: Sequence[Card]) -> tuple[Account, str]:
    """The account with its quotas resolved, and where they come from (Q1)."""
    groups = group_names(_gids_of(name))
    set_by_admin = engine.store.quotas()
    resolved, source = resolve(
        name, groups, set_by_admin, engine.settings.policy, [(card.capacity_mib, card.held_back_mib) for card in cards]
    )
    past, at = engine.store.usage().get(name, (0, 0))
    usage = decayed(past, engine.clock.second - at, engine.settings.policy.quota.half_life_s)
    return replace(resolved, usage=share(usage, resolved.weight)), source


def _gids_of(name: str) -> tuple[int, ...]:
    try:
        return database_groups(name, pwd.getpwnam(name).pw_gid)
    except KeyError:  # an account of a shared login is no Unix user (A3)
        return ()


def _measured(reading: NodeReading, attempts: Sequence[Attempt], uses: Uses) -> dict[tuple[int, int, str], int | None]:
    """(job, attempt, card) -> VRAM that its processes hold there; None where the driver hides it (M4)."""
    owner_of = {pid: key for key, use in uses.items() for pid in use.pids}
    found: dict[tuple[int, int, str], int | None] = {}
    for card in reading.cards:
        for attempt in attempts:
            if card.uuid in attempt.cards:
                found[(attempt.job_id, attempt.number, card.uuid)] = None if card.processes is None else 0
        for process in card.processes or ():
            key = owner_of.get(process.pid)
            if key is None:
                continue
            place = (*key, card.uuid)
            before = found.get(place, 0)
            hidden = process.used_mib is None or before is None
            found[place] = None if hidden else (before or 0) + (process.used_mib or 0)
    return found


def _leases(
    attempts: Sequence[Attempt], owners: Mapping[int, Job], measured: Mapping[tuple[int, int, str], int | None]
) -> tuple[Lease, ...]:
    return tuple(
        Lease(
            job_id=attempt.job_id,
            account=owner.account,
            user=owner.user,
            job_class=owner.ask.job_class,
            card=uuid,
            claim_mib=attempt.claim_mib,
            charge_mib=attempt.charge_mib,
            measured_mib=measured.get((attempt.job_id, attempt.number, uuid)),
            started_at=attempt.started_at,
            releasing=attempt.phase is AttemptPhase.RELEASING,
        )
        for attempt in attempts
        if (owner := owners.get(attempt.job_id)) is not None
        for uuid in attempt.cards
    )


def _card(engine: Engine, card: CardReading, leases: Sequence[Lease], attempts: Sequence[Attempt], uses: Uses) -> Card:
    # VRAM that a job holds on a card it was not given is in F there: it has no lease to be charged to.
    policy = engine.settings.policy
    capacity = capacity_mib(card.total_mib, card.reserved_mib, policy.place.margin_mib)
    ours = {pid for use in uses.values() for pid in use.pids}
    here = [lease.measured_mib for lease in leases if lease.card == card.uuid]
    hidden = card.processes is None or any(process.used_mib is None for process in card.processes)
    foreign = foreign_mib(card.used_mib, here, hidden)
    notes = []
    if hidden:
        notes.append("the driver hides per-process memory: overuse and strangers are not policed on this card")
    notes.extend(attempt.flagged for attempt in attempts if attempt.flagged and card.uuid in attempt.cards)
    drained = engine.store.drained().get(card.uuid) or card.fault
    if drained is None and card.too_hot:
        drained = f"at {card.temperature_c} °C, its slowdown temperature"
    return Card(
        uuid=card.uuid,
        index=card.index,
        name=card.name,
        pci_bus_id=card.pci_bus_id,
        capacity_mib=capacity,
        held_back_mib=held_back_mib(policy.quota, capacity),
        used_mib=card.used_mib,
        foreign_mib=foreign,
        strangers=_strangers(engine, card, ours),
        hidden=hidden,
        drained=drained,
        gone=card.gone,
        gpu_percent=card.gpu_percent,
        temperature_c=card.temperature_c,
        notes=tuple(notes),
    )


def _strangers(engine: Engine, card: CardReading, ours: set[int]) -> tuple[Stranger, ...]:
    found = []
    for process in card.processes or ():
        if process.pid in ours:
            continue
        known = engine.identify(process.pid)
        if known is not None and known.display_server:
            continue  # counts in F, but is nobody's misconduct (M3)
        user, command = (known.user, known.command) if known is not None else ("unknown", "unknown")
        found.append(Stranger(pid=process.pid, user=user, command=command, used_mib=process.used_mib))
    return tuple(found)


def gpu_permille(reading: NodeReading, attempt: Attempt, pids: frozenset[int]) -> int | None:
    """How busy the attempt keeps its busiest card, in per mille. Where per-process utilisation is hidden, the
    card's own stands for it: only a card that is idle as a whole makes a job idle (I1). None: nothing is known."""
    busiest: int | None = None
    for card in reading.cards:
        if card.uuid not in attempt.cards:
            continue
        own = [process.gpu_percent for process in card.processes or () if process.pid in pids]
        known = [percent for percent in own if percent is not None]
        if card.processes is not None and len(known) == len(own):
            percent: int | None = min(100, sum(known))
        else:
            percent = card.gpu_percent
        if percent is not None:
            busiest = max(busiest or 0, percent * 10)
    if not attempt.cards:
        return 0
    return busiest


def unix_now() -> int:
    return int(time.time())
