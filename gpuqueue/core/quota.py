"""Whose VRAM it is by right: an account's nominal quota, and what it uses of it (Q1, Q2, Q3)."""

from collections.abc import Mapping, Sequence

from gpuqueue.core.ledger import CardLoad, Ledger
from gpuqueue.core.policy import Nominal, Policy
from gpuqueue.core.snapshot import Account
from gpuqueue.wire.states import JobClass

UNSET = Nominal()
FOR_USER, BY_DEFAULT = "set for the user", "default"


def resolve(
    account: str,
    groups: Sequence[str],
    set_by_admin: Mapping[str, Nominal],
    policy: Policy,
    cards: Sequence[tuple[int, int]],
) -> tuple[Account, str]:
    """The account with its quota per class, and where that comes from, in words (Q1): set for the user (with
    `gq quota set`, else in the policy file), else the largest of its Unix groups, else the default.
    `cards` are (capacity, held back) in MiB of every card of the node, drained ones included."""
    train_mib, train_source = _nominal(account, groups, set_by_admin, policy, cards, JobClass.TRAIN)
    light_mib, light_source = _nominal(account, groups, set_by_admin, policy, cards, JobClass.LIGHT)
    source = train_source if train_source == light_source else f"train {train_source}, light {light_source}"
    resolved = Account(
        name=account,
        train_mib=train_mib,
        light_mib=light_mib,
        weight=max(1, policy.quota.weights.get(account, 1)),
        idle_exempt=account in policy.idle.exempt_accounts,
    )
    return resolved, source


def _nominal(
    account: str,
    groups: Sequence[str],
    set_by_admin: Mapping[str, Nominal],
    policy: Policy,
    cards: Sequence[tuple[int, int]],
    job_class: JobClass,
) -> tuple[int, str]:
    for level in (set_by_admin, policy.quota.users):
        own_mib = level.get(account, UNSET).of(job_class)
        if own_mib is not None:
            return own_mib, FOR_USER
    of_groups = [
        (mib, group)
        for group in sorted(set(groups))
        if (mib := policy.quota.groups.get(group, UNSET).of(job_class)) is not None
    ]
    if of_groups:
        mib, group = max(of_groups, key=lambda pair: pair[0])
        return mib, f"group {group}"
    default_mib = policy.quota.default.of(job_class)
    return (default_nominal_mib(cards, job_class) if default_mib is None else default_mib), BY_DEFAULT


def default_nominal_mib(cards: Sequence[tuple[int, int]], job_class: JobClass) -> int:
    """Q2: what the largest card gives a class, once per node: C - H for train, H for light; 0 without cards."""
    if not cards:
        return 0
    capacity_mib, held_back_mib = max(cards)
    return capacity_mib - held_back_mib if job_class is JobClass.TRAIN else held_back_mib


def within_quota(ledger: Ledger, account: Account, job_class: JobClass, claim_mib: int) -> bool:
    """Q3, the account's side: its use and the claim together stay within its nominal quota."""
    return ledger.used_mib(account.name, job_class) + claim_mib <= account.nominal(job_class)


def by_right(load: CardLoad, ledger: Ledger, account: Account, job_class: JobClass, claim_mib: int) -> bool:
    """Q3 whole: a job of that claim may start on that card now, by right of card and account, and fits."""
    return claim_mib <= load.room_mib(job_class) and within_quota(ledger, account, job_class, claim_mib)
