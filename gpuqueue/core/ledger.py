"""The sums that every rule looks at: what is charged on each card, and to each account."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from gpuqueue.core.snapshot import Card, Lease, Snapshot
from gpuqueue.wire.states import JobClass

# M4: where the driver hides who holds what, a start counts in full on top of the card's used memory for so
# long, since nobody can see whether its claim is in there already.
SETTLING_S = 120


@dataclass(slots=True, kw_only=True)
class CardLoad:
    """One card with the sums over its leases, in whole MiB: T, L and F of the rules."""

    card: Card
    train_mib: int = 0
    light_mib: int = 0
    occupied_mib: int = 0  # sum of max(charge, measured) (M3)
    settling_mib: int = 0  # of that, what started too recently to be seen (M4)
    leases: list[Lease] = field(default_factory=list)

    @property
    def tenants(self) -> int:
        return len(self.leases)

    @property
    def outside_mib(self) -> int:
        """F; on a card whose processes are hidden, what is used beyond all charges (M4)."""
        if self.card.hidden:
            return max(0, self.card.used_mib - self.occupied_mib)
        return self.card.foreign_mib

    @property
    def free_mib(self) -> int:
        """What physically fits (M3), negative where the card is over-committed."""
        if self.card.hidden:
            return self.card.capacity_mib - max(self.occupied_mib, self.card.used_mib + self.settling_mib)
        return self.card.capacity_mib - self.occupied_mib - self.card.foreign_mib

    def room_mib(self, job_class: JobClass) -> int:
        """The largest claim of that class which fits now and by the card's right (Q3); may be negative."""
        right_mib = by_right_mib(self.card, job_class, self.train_mib, self.light_mib, self.outside_mib)
        return min(right_mib, self.free_mib)

    def room_without_jobs_mib(self, job_class: JobClass) -> int:
        """The same if only what is held outside the queue were left."""
        right_mib = by_right_mib(self.card, job_class, 0, 0, self.outside_mib)
        return min(right_mib, self.card.capacity_mib - self.outside_mib)

    def room_on_empty_card_mib(self, job_class: JobClass) -> int:
        """The same if nothing at all were left: what the card can ever give that class by right."""
        return by_right_mib(self.card, job_class, 0, 0, 0)

    def add(self, lease: Lease, now: int) -> None:
        self.leases.append(lease)
        self._count(lease, now, 1)

    def remove(self, lease: Lease, now: int) -> None:
        self.leases.remove(lease)
        self._count(lease, now, -1)

    def _count(self, lease: Lease, now: int, sign: int) -> None:
        if lease.job_class is JobClass.TRAIN:
            self.train_mib += sign * lease.charge_mib
        else:
            self.light_mib += sign * lease.charge_mib
        self.occupied_mib += sign * max(lease.charge_mib, lease.measured_mib or 0)
        if now - lease.started_at < SETTLING_S:
            self.settling_mib += sign * lease.charge_mib


def by_right_mib(card: Card, job_class: JobClass, train_mib: int, light_mib: int, outside_mib: int) -> int:
    """Q3, the card's side: what a train job may claim is C - T - max(H, L) - F, a light job H - L."""
    if job_class is JobClass.TRAIN:
        return card.capacity_mib - train_mib - max(card.held_back_mib, light_mib) - outside_mib
    return card.held_back_mib - light_mib


@dataclass(slots=True, kw_only=True)
class Ledger:
    """All cards in PCI order, and what each account uses per class: its charges, over all cards (Q1)."""

    now: int
    loads: dict[str, CardLoad]
    used: dict[tuple[str, JobClass], int] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Ledger":
        cards = sorted(snapshot.cards, key=lambda card: (card.index, card.uuid))
        ledger = cls(now=snapshot.now, loads={card.uuid: CardLoad(card=card) for card in cards})
        for lease in sorted(snapshot.leases, key=lambda lease: (lease.job_id, lease.card)):
            ledger.add(lease)
        return ledger

    def used_mib(self, account: str, job_class: JobClass) -> int:
        return self.used.get((account, job_class), 0)

    def held_mib(self, account: str) -> int:
        return sum(self.used_mib(account, job_class) for job_class in JobClass)

    def leases(self) -> Iterable[Lease]:
        return (lease for load in self.loads.values() for lease in load.leases)

    def add(self, lease: Lease) -> None:
        self._use(lease, lease.charge_mib)
        if lease.card in self.loads:  # a card that was lost is in no sum but its account's
            self.loads[lease.card].add(lease, self.now)

    def remove(self, lease: Lease) -> None:
        self._use(lease, -lease.charge_mib)
        if lease.card in self.loads:
            self.loads[lease.card].remove(lease, self.now)

    def _use(self, lease: Lease, change_mib: int) -> None:
        key = (lease.account, lease.job_class)
        self.used[key] = self.used.get(key, 0) + change_mib
