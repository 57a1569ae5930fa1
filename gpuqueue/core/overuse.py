"""Who uses more VRAM than declared, and who must go when it does not fit (O1, Q8).

The charge follows what is measured once two samples in a row are over claim and tolerance. Growth past the
account's quota, past the class's part of the card, or past the card stops the one that grew, never a neighbour.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gpuqueue.core.decisions import Charge, Stop
from gpuqueue.core.model import AfterStop, Attempt, Job
from gpuqueue.core.policy import OverusePolicy
from gpuqueue.core.reasons import Reason, ReasonCode, sentence
from gpuqueue.core.snapshot import Card, Lease, Snapshot
from gpuqueue.wire.states import JobClass, JobState
from gpuqueue.wire.units import format_mib

SAMPLES = 2  # in a row, before the charge follows


def tolerance_mib(claim_mib: int, card: Card, policy: OverusePolicy) -> int:
    """How far a job may be over its claim before it counts: nothing on a card with next to nothing free."""
    if card.capacity_mib - card.used_mib < policy.tight_free_mib:
        return 0
    return max(policy.tolerance_mib, claim_mib * policy.tolerance_percent // 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Holding:
    """One running attempt on one card, with what it is charged from now on."""

    job: Job
    attempt: Attempt
    lease: Lease
    charge: Charge | None

    @property
    def charge_mib(self) -> int:
        return self.charge.charge_mib if self.charge is not None else self.lease.charge_mib

    @property
    def growth_mib(self) -> int:
        return self.charge_mib - self.lease.claim_mib


def judge(snapshot: Snapshot, policy: OverusePolicy) -> tuple[list[Charge], list[Stop]]:
    """The changed charges, with a text where the job goes on, and the offenders to stop. Cards whose processes are
    hidden have neither (M4)."""
    holdings = list(_holdings(snapshot, policy))
    stops = list(_offenders(snapshot, holdings, policy))
    stopped = {stop.job_id for stop in stops}
    charges = [holding.charge for holding in holdings if holding.charge is not None]
    return [replace(one, text="") if one.job_id in stopped else one for one in charges], stops


def over_claim(claim_mib: int, charge_mib: int) -> Reason:
    """What is said of a job that is charged for more than it declared."""
    return Reason(ReasonCode.OVER_CLAIM, {"claim_mib": claim_mib, "used_mib": charge_mib})


def _holdings(snapshot: Snapshot, policy: OverusePolicy) -> Iterator[_Holding]:
    """Every lease of a job that nobody stops already: what is on its way out will be free soon."""
    jobs = {job.id: job for job in snapshot.jobs if job.stop is None and job.state is not JobState.STOPPING}
    cards = {card.uuid: card for card in snapshot.cards}
    for lease in sorted(snapshot.leases, key=lambda lease: (lease.job_id, lease.card)):
        job, attempt, card = jobs.get(lease.job_id), snapshot.attempts.get(lease.job_id), cards.get(lease.card)
        if job is None or attempt is None or card is None or lease.releasing:
            continue
        judged = job.state is JobState.RUNNING and not card.hidden
        charge = (
            _charge(job, attempt, lease, card, policy) if judged and not _looked_at(attempt, snapshot.now) else None
        )
        yield _Holding(job=job, attempt=attempt, lease=lease, charge=charge)


def _looked_at(attempt: Attempt, now: int) -> bool:
    """The daemon may look twice within a second, for other reasons: that is one sample."""
    return 0 < attempt.over_samples < SAMPLES and attempt.over_at == now


def _charge(job: Job, attempt: Attempt, lease: Lease, card: Card, policy: OverusePolicy) -> Charge | None:
    """The new charge, or None while nothing about it changes."""
    measured = lease.measured_mib
    if measured is None:
        return None
    tolerance = tolerance_mib(lease.claim_mib, card, policy)
    over = measured > lease.claim_mib + tolerance
    samples = min(attempt.over_samples + 1, SAMPLES) if over else 0
    charge_mib = measured if samples == SAMPLES else lease.claim_mib
    if (samples, charge_mib) == (attempt.over_samples, lease.charge_mib):
        return None
    begins = lease.charge_mib <= lease.claim_mib < charge_mib  # said once, not at every step of a growth
    text = sentence(over_claim(lease.claim_mib, charge_mib)) if begins else ""
    claim_mib = max(job.claim_mib, charge_mib)
    return Charge(job_id=job.id, charge_mib=charge_mib, claim_mib=claim_mib, over_samples=samples, text=text)


def _offenders(snapshot: Snapshot, holdings: Sequence[_Holding], policy: OverusePolicy) -> Iterator[Stop]:
    """Growers, the one that grew most first, each judged by what is left when those before it are gone."""
    staying = list(holdings)
    growers = [holding for holding in holdings if holding.growth_mib > 0]
    for grower in sorted(growers, key=lambda g: (-g.growth_mib, -g.lease.started_at, -g.job.id)):
        reason = _offence(grower, staying, snapshot)
        if reason is not None:
            staying = [holding for holding in staying if holding.job.id != grower.job.id]
            grace_s = min(policy.grace_s, grower.job.ask.grace_s)
            yield Stop(job_id=grower.job.id, reason=reason, after=AfterStop.STOP, grace_s=grace_s)


def _offence(grower: _Holding, staying: Sequence[_Holding], snapshot: Snapshot) -> Reason | None:
    card = next(card for card in snapshot.cards if card.uuid == grower.lease.card)
    job_class = grower.job.ask.job_class
    on_card = [holding for holding in staying if holding.lease.card == card.uuid]
    fields: dict[str, str | int] = {
        "claim_mib": grower.lease.claim_mib,
        "used_mib": max(grower.charge_mib, grower.lease.measured_mib or 0),
    }
    if _sum(on_card) > card.capacity_mib:
        return Reason(ReasonCode.OVERUSE, fields | {"card": card.index})
    part = [holding for holding in on_card if holding.job.ask.job_class is job_class]
    of_account = [
        holding
        for holding in staying
        if holding.job.account == grower.job.account and holding.job.ask.job_class is job_class
    ]
    part_mib, nominal_mib = _part_mib(grower, card), _nominal_mib(grower, snapshot)
    left_mib, limit = min(
        (part_mib - _sum(part), f"what card {card.index} has for {job_class} jobs ({format_mib(part_mib)})"),
        (nominal_mib - _sum(of_account), f"{grower.job.account}'s {job_class} quota of {format_mib(nominal_mib)}"),
    )
    if left_mib >= 0:
        return None
    allowed_mib = max(0, grower.charge_mib + left_mib)
    return Reason(ReasonCode.OVERUSE_QUOTA, fields | {"limit": limit, "allowed_mib": allowed_mib})


def _part_mib(grower: _Holding, card: Card) -> int:
    """What the card gives its class (Q4), the better of now and when the job started (Q8)."""
    then_mib = grower.attempt.held_back_mib
    if grower.job.ask.job_class is JobClass.TRAIN:
        return card.capacity_mib - min(card.held_back_mib, then_mib)
    return max(card.held_back_mib, then_mib)


def _nominal_mib(grower: _Holding, snapshot: Snapshot) -> int:
    now_mib = snapshot.accounts[grower.job.account].nominal(grower.job.ask.job_class)
    return max(now_mib, grower.attempt.nominal_mib)


def _sum(holdings: Sequence[_Holding]) -> int:
    return sum(holding.charge_mib for holding in holdings)
