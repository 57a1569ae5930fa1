"""Nouns of core with sane defaults, for the tests of every room. Sizes are whole MiB; GIB helps to write them."""

from collections.abc import Iterable, Mapping
from typing import Any

from gpuqueue.core.model import Ask, Attempt, AttemptPhase, Job
from gpuqueue.core.snapshot import Account, Activity, Card, Lease, Sample, Snapshot
from gpuqueue.wire.states import JobClass, JobState

GIB = 1024
NOW = 100_000
CARD_MIB = 32607  # what a "32 GB" card reads (M2)
HELD_BACK_MIB = 8704  # 28 % of it, down to half a GiB (Q2)


def ask(claim_mib: int = 4 * GIB, **changes: Any) -> Ask:
    values: dict[str, Any] = {"job_class": JobClass.TRAIN, "claim_mib": claim_mib, "cards": 1 if claim_mib else 0}
    return Ask(**values | changes)


def job(
    id: int = 1,
    claim_mib: int = 4 * GIB,
    *,
    user: str = "anna",
    job_class: JobClass = JobClass.TRAIN,
    state: JobState = JobState.QUEUED,
    asking: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Job:
    """A queued train job of anna, submitted `id` seconds after the others. `asking` changes its Ask."""
    values: dict[str, Any] = {
        "id": id,
        "user": user,
        "uid": 1000 + sum(user.encode()) % 1000,
        "account": user,
        "ask": ask(claim_mib, job_class=job_class, **(asking or {})),
        "state": state,
        "state_since": NOW - 60,
        "queued_at": NOW - 10_000 + id,
        "submitted_unix": 1_700_000_000 + id,
        "claim_mib": claim_mib,
        "attempt": 1 if state.active else 0,
    }
    return Job(**values | changes)


def running(id: int = 1, claim_mib: int = 4 * GIB, **changes: Any) -> Job:
    return job(id, claim_mib, **{"state": JobState.RUNNING} | changes)


def card(index: int = 0, capacity_mib: int = CARD_MIB, held_back_mib: int = HELD_BACK_MIB, **changes: Any) -> Card:
    """A card of which `used_mib` is foreign unless told otherwise."""
    values: dict[str, Any] = {
        "uuid": f"GPU-{index}",
        "index": index,
        "name": "Simulated GPU",
        "pci_bus_id": f"00000000:{index + 1:02X}:00.0",
        "capacity_mib": capacity_mib,
        "held_back_mib": held_back_mib,
        "used_mib": changes.get("foreign_mib", 0),
        "foreign_mib": 0,
    }
    return Card(**values | changes)


def lease(of: Job, on: Card | str = "GPU-0", **changes: Any) -> Lease:
    """What that job holds on that card: its claim, for ten minutes so far, and as much measured."""
    values: dict[str, Any] = {
        "job_id": of.id,
        "account": of.account,
        "user": of.user,
        "job_class": of.ask.job_class,
        "card": on if isinstance(on, str) else on.uuid,
        "claim_mib": of.claim_mib,
        "charge_mib": of.claim_mib,
        "measured_mib": of.claim_mib,
        "started_at": NOW - 600,
    }
    return Lease(**values | changes)


def attempt(of: Job, leases: Iterable[Lease] = (), **changes: Any) -> Attempt:
    """The job's live attempt, as its leases have it."""
    held = list(leases)
    values: dict[str, Any] = {
        "job_id": of.id,
        "number": max(1, of.attempt),
        "phase": AttemptPhase.RUNNING,
        "cards": tuple(one.card for one in held),
        "claim_mib": held[0].claim_mib if held else of.claim_mib,
        "charge_mib": held[0].charge_mib if held else of.claim_mib,
        "marker": f"marker-{of.id}",
        "boot_id": "boot-1",
        "started_at": held[0].started_at if held else NOW - 600,
        "started_unix": 1_700_000_000,
        "nominal_mib": 23903,
        "held_back_mib": HELD_BACK_MIB,
    }
    return Attempt(**values | changes)


def account(name: str = "anna", train_mib: int = 23903, light_mib: int = HELD_BACK_MIB, **changes: Any) -> Account:
    return Account(name=name, train_mib=train_mib, light_mib=light_mib, **changes)


def quiet(seconds: int, *, until: int = NOW, span_s: int = 10, **changes: Any) -> tuple[Sample, ...]:
    """Samples of a job that did nothing (or what `changes` says) for the last `seconds` before `until`."""
    values: dict[str, Any] = {"span_s": span_s, "gpu_permille": 0, "cpu_millicores": 0, "io_kib_s": 0}
    ends = range(until - seconds + span_s, until + 1, span_s)
    return tuple(Sample(at=at, **values | changes) for at in ends)


def snapshot(
    *,
    cards: Iterable[Card] | None = None,
    jobs: Iterable[Job] = (),
    leases: Iterable[Lease] | None = None,
    accounts: Iterable[Account] = (),
    attempts: Mapping[int, Attempt] | None = None,
    activity: Mapping[int, Activity] | None = None,
    now: int = NOW,
    **changes: Any,
) -> Snapshot:
    """One 32 GB card unless told otherwise. Active jobs hold a lease on the first card and have an attempt,
    and every account has the default quota, unless they are given."""
    cards = (card(),) if cards is None else tuple(cards)
    jobs = tuple(jobs)
    if leases is None:
        leases = tuple(lease(one, cards[0]) for one in jobs if one.state.active and one.ask.cards and cards)
    leases = tuple(leases)
    named = {one.name: one for one in accounts}
    for name in (*(one.account for one in jobs), *(one.account for one in leases)):
        named.setdefault(name, account(name))
    live = {
        one.id: attempt(one, [held for held in leases if held.job_id == one.id]) for one in jobs if one.state.active
    }
    return Snapshot(
        now=now,
        cards=cards,
        jobs=jobs,
        attempts=live | dict(attempts or {}),
        leases=leases,
        accounts=named,
        activity=dict(activity or {}),
        **changes,
    )
