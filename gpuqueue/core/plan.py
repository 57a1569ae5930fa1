"""Which waiting jobs start now, on which cards, and why the others wait.

One plan, in numbered steps:

1. Set aside who is not considered: stopped, held, in a pause (R1), or impossible here since a change (Q5). A job whose
   checkpoint directory another job of its user saves into (R2) waits for it and closes nothing.
2. Start at once what needs no card (P2).
3. Walk the others in the order of S1. Each starts by right (Q3) on the card that P1 chooses, or gets its verdict
   (S5). One that VRAM blocks closes the cards it waits for to later jobs of its own class (S4).
4. Walk again until a walk starts nothing, since every start moves its account back (S1). The last walk's
   verdicts stand, and a plan made after this one would start nothing more.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gpuqueue.core import forecast, verdicts
from gpuqueue.core.admit import refusal
from gpuqueue.core.apply import lease_of
from gpuqueue.core.decisions import Plan, Start
from gpuqueue.core.ledger import CardLoad, Ledger
from gpuqueue.core.model import Job
from gpuqueue.core.order import Queue, Shares
from gpuqueue.core.place import choose, matching, wanted
from gpuqueue.core.policy import Policy
from gpuqueue.core.quota import within_quota
from gpuqueue.core.reasons import Reason, ReasonCode, sentence
from gpuqueue.core.snapshot import Snapshot
from gpuqueue.core.writers import Writers, saves_into
from gpuqueue.wire.states import WAITING_STATES, JobClass

Alike = tuple[object, ...]


def plan(snapshot: Snapshot, policy: Policy) -> Plan:
    """The starts, in the order decided, and exactly one verdict for every other waiting job."""
    writers = Writers.of(snapshot.jobs)
    contenders, starts, told = _sort_out(snapshot, policy, writers)
    cycle = _Cycle.of(snapshot, policy, writers)
    while True:
        walk = cycle.walk(contenders)
        starts += walk.starts
        if not walk.starts:
            return Plan(starts=tuple(starts), verdicts=told | walk.verdicts, expected_at=cycle.expected(walk))
        started = {start.job_id for start in walk.starts}
        contenders = [job for job in contenders if job.id not in started]


def _sort_out(snapshot: Snapshot, policy: Policy, writers: Writers) -> tuple[list[Job], list[Start], dict[int, Reason]]:
    """Steps 1 and 2: (who competes for cards, who starts without one, verdicts of the others)."""
    contenders: list[Job] = []
    starts: list[Start] = []
    told: dict[int, Reason] = {}
    refusals: dict[Alike, Reason | None] = {}
    for job in sorted(snapshot.jobs, key=lambda job: job.id):
        if job.state not in WAITING_STATES:
            continue
        if aside := verdicts.set_aside(job, snapshot.now) or writers.in_the_way(job):
            told[job.id] = aside
        elif job.ask.cards == 0:
            writers.started(job)
            starts.append(Start(job_id=job.id, cards=(), claim_mib=0, nominal_mib=0, held_back_mib=0))
        elif snapshot.cards_fault is not None:
            told[job.id] = Reason(ReasonCode.CARDS_UNREADABLE, {"why": snapshot.cards_fault})
        else:
            key = _alike(job)
            if key not in refusals:
                refusals[key] = _impossible(job, snapshot, policy)
            if never := refusals[key]:
                told[job.id] = never
            else:
                contenders.append(job)
    return contenders, starts, told


def _impossible(job: Job, snapshot: Snapshot, policy: Policy) -> Reason | None:
    if not snapshot.cards:
        return Reason(ReasonCode.NO_CARD_MATCHES, {"wanted": wanted(job.ask)})
    ask = replace(job.ask, claim_mib=job.claim_mib)
    never = refusal(ask, snapshot.accounts[job.account], snapshot.cards, policy)
    return Reason(ReasonCode.IMPOSSIBLE, {"why": sentence(never)}) if never is not None else None


def _alike(job: Job) -> Alike:
    """Jobs with the same key get the same answer at the same moment."""
    ask = job.ask
    card = (ask.cards, ask.exclusive, ask.gpu_type, ask.gpu_indexes)
    return (job.account, ask.job_class, job.claim_mib, card, saves_into(job))


@dataclass(slots=True)
class _Walk:
    """What one walk found. `closed`: by class and card, the job that waits for it and its verdict (S4).
    `heads`: whose start is worth foretelling, with the cards it could be on."""

    starts: list[Start] = field(default_factory=list)
    verdicts: dict[int, Reason] = field(default_factory=dict)
    closed: dict[tuple[JobClass, str], tuple[Job, Reason]] = field(default_factory=dict)
    heads: list[tuple[Job, list[CardLoad]]] = field(default_factory=list)
    quota_heads: set[tuple[str, JobClass]] = field(default_factory=set)

    def open_to(self, job: Job, loads: Sequence[CardLoad]) -> list[CardLoad]:
        return [load for load in loads if (job.ask.job_class, load.card.uuid) not in self.closed]

    def close(self, job: Job, loads: list[CardLoad], reason: Reason) -> None:
        self.closed |= {(job.ask.job_class, load.card.uuid): (job, reason) for load in loads}
        self.heads.append((job, loads))


@dataclass(slots=True)
class _Cycle:
    """What grows while one plan is made: the charges, the shares, the directories that are saved into."""

    snapshot: Snapshot
    policy: Policy
    ledger: Ledger
    shares: Shares
    writers: Writers

    @classmethod
    def of(cls, snapshot: Snapshot, policy: Policy, writers: Writers) -> "_Cycle":
        ledger = Ledger.of(snapshot)
        usage = {name: account.usage for name, account in snapshot.accounts.items()}
        held_mib = {name: ledger.held_mib(name) for name in snapshot.accounts}
        return cls(snapshot, policy, ledger, Shares(snapshot.accounts, usage, held_mib), writers)

    def walk(self, contenders: Sequence[Job]) -> _Walk:
        walk = _Walk()
        known: dict[Alike, Reason] = {}  # who cannot start now cannot after a start either: room only shrinks
        for job in Queue(contenders, self.shares):
            key = _alike(job)
            if key in known:
                walk.verdicts[job.id] = known[key]
                continue
            closed_before = len(walk.closed)
            outcome = self._consider(job, walk)
            if isinstance(outcome, Start):
                walk.starts.append(outcome)
                continue
            walk.verdicts[job.id] = outcome
            if len(walk.closed) == closed_before:  # else the next one alike is behind this one
                known[key] = outcome
        return walk

    def _consider(self, job: Job, walk: _Walk) -> Start | Reason:
        if taken := self.writers.in_the_way(job):  # by a job that this plan starts
            return taken
        account = self.snapshot.accounts[job.account]
        suitable = {card.uuid for card in matching(job.ask, self.snapshot.cards)}
        loads = [load for uuid, load in self.ledger.loads.items() if uuid in suitable]  # in PCI order
        in_use = [load for load in loads if load.card.drained is None]
        if not in_use:
            return _out_of_reach(job, loads, in_use)
        if not within_quota(self.ledger, account, job.ask.job_class, job.claim_mib):
            self._note_quota_head(job, walk, in_use)
            return verdicts.over_quota(job, account, self.ledger)
        fitting = [load for load in walk.open_to(job, in_use) if job.claim_mib <= load.room_mib(job.ask.job_class)]
        load = choose([load for load in fitting if not self._crowded(load)], self.policy.place.placement)
        if load is not None:
            return self._start(job, load)
        return self._why_not(job, loads, in_use, fitting, walk)

    def _crowded(self, load: CardLoad) -> bool:
        most = self.policy.place.max_tenants
        return most is not None and load.tenants >= most

    def _start(self, job: Job, load: CardLoad) -> Start:
        start = Start(
            job_id=job.id,
            cards=(load.card.uuid,),
            claim_mib=job.claim_mib,
            nominal_mib=self.snapshot.accounts[job.account].nominal(job.ask.job_class),
            held_back_mib=load.card.held_back_mib,
        )
        self.ledger.add(lease_of(job, start, load.card.uuid, self.snapshot.now))
        self.shares.started(job)
        self.writers.started(job)
        return start

    def _why_not(
        self, job: Job, loads: list[CardLoad], in_use: list[CardLoad], fitting: list[CardLoad], walk: _Walk
    ) -> Reason:
        """The verdict of a job within its quota. Only what waiting for jobs can cure closes a card (S4)."""
        job_class = job.ask.job_class
        if fitting:
            return verdicts.crowded(fitting[0], self.snapshot.now)
        waits_for = [load for load in in_use if job.claim_mib <= load.room_without_jobs_mib(job_class)]
        if not waits_for:
            return _out_of_reach(job, loads, in_use)
        mine = walk.open_to(job, waits_for)
        if not mine:
            return verdicts.behind(*walk.closed[job_class, waits_for[0].card.uuid])
        reason = verdicts.no_vram(job, mine, self.snapshot.now)
        walk.close(job, mine, reason)
        return reason

    def _note_quota_head(self, job: Job, walk: _Walk, in_use: list[CardLoad]) -> None:
        """The first of its account's jobs starts when both quota and VRAM allow, unless one of its class waits
        before it."""
        key = (job.account, job.ask.job_class)
        if key in walk.quota_heads:
            return
        walk.quota_heads.add(key)
        if len(walk.open_to(job, in_use)) == len(in_use):
            walk.heads.append((job, in_use))

    def expected(self, walk: _Walk) -> dict[int, int]:
        ends = forecast.releases(self.snapshot, self.ledger)
        found = {
            job.id: forecast.latest_start(job, self.snapshot.accounts[job.account], loads, self.ledger, ends)
            for job, loads in walk.heads
        }
        return {job_id: at for job_id, at in found.items() if at is not None}


def _out_of_reach(job: Job, loads: list[CardLoad], in_use: list[CardLoad]) -> Reason:
    """No card would take the job even if every other job were gone: strangers hold it, or it is drained."""
    in_the_way = [load for load in in_use if load.outside_mib > 0 and _big_enough(job, load)]
    if in_the_way:
        return verdicts.foreign(job, min(in_the_way, key=lambda load: (load.outside_mib, load.card.index)))
    for load in loads:
        if load.card.drained is not None and (_big_enough(job, load) or load.card.capacity_mib == 0):
            return Reason(ReasonCode.DRAINED, {"card": load.card.index, "why": load.card.drained})
    return Reason(ReasonCode.CARDS_UNREADABLE, {"why": "a card reads 0 MiB"})


def _big_enough(job: Job, load: CardLoad) -> bool:
    return job.claim_mib <= load.room_on_empty_card_mib(job.ask.job_class)
