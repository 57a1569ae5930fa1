"""What holds of every plan, whatever the node looks like."""

import random
from dataclasses import fields, is_dataclass, replace
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from gpuqueue.core.apply import apply
from gpuqueue.core.decisions import Plan
from gpuqueue.core.place import matching
from gpuqueue.core.plan import plan
from gpuqueue.core.policy import Policy
from gpuqueue.core.reasons import fields_of, sentence
from gpuqueue.core.snapshot import Card, Lease, Snapshot
from gpuqueue.core.writers import saves_into
from gpuqueue.wire.states import WAITING_STATES, JobClass
from tests.core.worlds import policies, snapshots

some = settings(max_examples=100)


def on(card: Card, after: Snapshot) -> list[Lease]:
    return [lease for lease in after.leases if lease.card == card.uuid]


def charged(leases: list[Lease], job_class: JobClass | None = None) -> int:
    return sum(lease.charge_mib for lease in leases if job_class in (None, lease.job_class))


def given_a_job(decided: Plan, snapshot: Snapshot) -> list[Card]:
    uuids = {uuid for start in decided.starts for uuid in start.cards}
    return [card for card in snapshot.cards if card.uuid in uuids]


@some
@given(snapshots(), policies)
def test_no_start_makes_charges_exceed_capacity(snapshot: Snapshot, policy: Policy) -> None:
    """M2, M3, Q3: T + L + F and what is physically there stay within C on every card that gets a job."""
    decided = plan(snapshot, policy)
    after = apply(snapshot, decided)
    event(f"{min(len(decided.starts), 3)} starts")
    for card in given_a_job(decided, snapshot):
        leases = on(card, after)
        occupied_mib = sum(max(lease.charge_mib, lease.measured_mib or 0) for lease in leases)
        assert occupied_mib + card.foreign_mib <= card.capacity_mib
        if card.hidden:  # M4: the new ones fit into what is free now
            assert card.used_mib + charged(leases) - charged(on(card, snapshot)) <= card.capacity_mib


@some
@given(snapshots(), policies)
def test_nobody_starts_beyond_the_account_quota(snapshot: Snapshot, policy: Policy) -> None:
    """Q3: use and claims together stay within the nominal quota of whoever starts something."""
    decided = plan(snapshot, policy)
    after = apply(snapshot, decided)
    jobs = {job.id: job for job in snapshot.jobs}
    for start in decided.starts:
        job = jobs[start.job_id]
        own = [lease for lease in after.leases if lease.account == job.account]
        if start.cards:
            nominal_mib = snapshot.accounts[job.account].nominal(job.ask.job_class)
            assert charged(own, job.ask.job_class) <= nominal_mib == start.nominal_mib


@some
@given(snapshots(), policies)
def test_held_back_vram_goes_to_light_jobs_only(snapshot: Snapshot, policy: Policy) -> None:
    """Q2, Q3: a train start leaves H (or L) alone, light starts stay within H."""
    decided = plan(snapshot, policy)
    after = apply(snapshot, decided)
    jobs = {job.id: job for job in snapshot.jobs}
    for card in given_a_job(decided, snapshot):
        leases = on(card, after)
        classes = {jobs[start.job_id].ask.job_class for start in decided.starts if card.uuid in start.cards}
        train_mib, light_mib = charged(leases, JobClass.TRAIN), charged(leases, JobClass.LIGHT)
        if JobClass.TRAIN in classes:
            assert train_mib + max(card.held_back_mib, light_mib) + card.foreign_mib <= card.capacity_mib
        if JobClass.LIGHT in classes:
            assert light_mib <= card.held_back_mib


@some
@given(snapshots(), policies, st.randoms(use_true_random=False))
def test_input_order_changes_nothing(snapshot: Snapshot, policy: Policy, dice: random.Random) -> None:
    def shuffled(things: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(dice.sample(things, len(things)))

    other = replace(
        snapshot,
        jobs=shuffled(snapshot.jobs),
        cards=shuffled(snapshot.cards),
        leases=shuffled(snapshot.leases),
        accounts=dict(shuffled(tuple(snapshot.accounts.items()))),
    )
    assert plan(other, policy) == plan(snapshot, policy)


@some
@given(snapshots(), policies)
def test_a_plan_after_a_plan_starts_nothing_more(snapshot: Snapshot, policy: Policy) -> None:
    assert plan(apply(snapshot, plan(snapshot, policy)), policy).starts == ()


@some
@given(snapshots(), policies)
def test_every_waiting_job_starts_or_has_one_verdict(snapshot: Snapshot, policy: Policy) -> None:
    """S5. A start is on a card that the job may use, one verdict a job, and only waiting jobs are spoken of."""
    decided = plan(snapshot, policy)
    started = [start.job_id for start in decided.starts]
    jobs = {job.id: job for job in snapshot.jobs}
    assert sorted([*started, *decided.verdicts]) == sorted(
        job.id for job in jobs.values() if job.state in WAITING_STATES
    )
    cards = {card.uuid: card for card in snapshot.cards}
    for start in decided.starts:
        job = jobs[start.job_id]
        assert not job.held and job.stop is None and (job.not_before or 0) <= snapshot.now
        assert len(start.cards) == job.ask.cards and start.claim_mib == job.claim_mib
        chosen = [cards[uuid] for uuid in start.cards]
        assert matching(job.ask, chosen) == chosen
        assert all(card.drained is None for card in chosen)
        assert not (chosen and snapshot.cards_fault)
    assert set(decided.expected_at) <= set(decided.verdicts)
    assert all(at >= snapshot.now for at in decided.expected_at.values())


@some
@given(snapshots(), policies)
def test_verdicts_fill_their_sentences(snapshot: Snapshot, policy: Policy) -> None:
    """S5: the fields are those that the sentence declares, no more and no less."""
    for reason in plan(snapshot, policy).verdicts.values():
        assert set(reason.fields) == fields_of(reason.code)
        assert "?" not in sentence(reason)


@some
@given(snapshots(), policies)
def test_decisions_hold_whole_numbers_only(snapshot: Snapshot, policy: Policy) -> None:
    decided = plan(snapshot, policy)
    assert [value for value in _leaves([decided, apply(snapshot, decided)]) if isinstance(value, float)] == []


def _leaves(thing: Any) -> list[Any]:
    if is_dataclass(thing):
        return [leaf for field in fields(thing) for leaf in _leaves(getattr(thing, field.name))]
    if isinstance(thing, dict):
        return [leaf for pair in thing.items() for leaf in _leaves(list(pair))]
    if isinstance(thing, list | tuple | frozenset):
        return [leaf for one in thing for leaf in _leaves(one)]
    return [thing]


@some
@given(snapshots(), policies)
def test_no_start_saves_where_another_job_saves(snapshot: Snapshot, policy: Policy) -> None:
    """R2: whoever starts is the only one of its user there that has begun and not ended, unless it had begun before."""
    decided = plan(snapshot, policy)
    after = apply(snapshot, decided)
    jobs = {job.id: job for job in snapshot.jobs}
    begun = [job for job in after.jobs if job.attempt and saves_into(job)]
    for start in decided.starts:
        job = jobs[start.job_id]
        beside = [other for other in begun if saves_into(other) == saves_into(job) and other.id != job.id]
        event(f"a directory: {job.ask.checkpoint_dir is not None}")
        assert not any(other.state.active for other in beside)
        assert not beside or job.attempt
