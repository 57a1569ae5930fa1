"""Use case: show and change quotas (Q1). Changes count from the next start on (Q8), without a restart."""

from dataclasses import replace

from gpuqueue.core.policy import Nominal
from gpuqueue.core.snapshot import Account
from gpuqueue.engine.callers import Caller
from gpuqueue.engine.engine import Engine
from gpuqueue.engine.observe import account
from gpuqueue.wire.errors import ErrorCode, GpuqueueError
from gpuqueue.wire.jobs import QuotaChange, QuotaView
from gpuqueue.wire.states import JobClass
from gpuqueue.wire.units import MAX_VRAM_MIB, format_mib


def all_quotas(engine: Engine, caller: Caller) -> list[QuotaView]:
    """The caller's, then of everybody who has a quota set or a job."""
    others = set(engine.store.quotas()) | {job.account for job in engine.store.open_jobs()}
    return [view(engine, name) for name in [caller.user, *sorted(others - {caller.user})]]


def view(engine: Engine, name: str) -> QuotaView:
    resolved, source = account(engine, name, engine.snapshot.cards)
    return QuotaView(
        account=name,
        train_mib=resolved.train_mib,
        light_mib=resolved.light_mib,
        train_used_mib=used(engine, resolved, JobClass.TRAIN),
        light_used_mib=used(engine, resolved, JobClass.LIGHT),
        source=source,
    )


def used(engine: Engine, holder: Account, job_class: JobClass) -> int:
    return sum(
        lease.charge_mib
        for lease in engine.snapshot.leases
        if lease.account == holder.name and lease.job_class is job_class
    )


def change(engine: Engine, caller: Caller, name: str, wanted: QuotaChange) -> QuotaView:
    _require_admin(caller, name)
    if wanted.train_mib is None and wanted.light_mib is None:
        raise GpuqueueError(ErrorCode.INVALID, "no quota given", "write for example --train 20G")
    for mib in (wanted.train_mib, wanted.light_mib):
        if mib is not None and not 0 <= mib <= MAX_VRAM_MIB:
            raise GpuqueueError(ErrorCode.INVALID, f"a quota of {mib} MiB is out of range", "write for example 20G")
    before = engine.store.quotas().get(name, Nominal())
    nominal = Nominal(
        train_mib=wanted.train_mib if wanted.train_mib is not None else before.train_mib,
        light_mib=wanted.light_mib if wanted.light_mib is not None else before.light_mib,
    )
    parts = [
        f"{label} {format_mib(mib)}"
        for label, mib in (("train", wanted.train_mib), ("light", wanted.light_mib))
        if mib is not None
    ]
    with engine.store.transaction():
        engine.store.set_quota(name, nominal)
        engine.event("quota", caller.user, f"quota of {name} set: {', '.join(parts)}")
    return replace(view(engine, name), note=_out_of_reach(engine, nominal))


def _out_of_reach(engine: Engine, nominal: Nominal) -> str:
    """What of the quota no job can ever hold here; "" where all of it can be held, or no card is known."""
    cards = engine.snapshot.cards
    light_part_mib = sum(card.held_back_mib for card in cards)
    train_part_mib = sum(card.capacity_mib for card in cards) - light_part_mib
    notes = [
        f"{job_class} jobs hold at most {format_mib(part_mib)} on this node, whatever the quota"
        for job_class, mib, part_mib in (
            (JobClass.TRAIN, nominal.train_mib, train_part_mib),
            (JobClass.LIGHT, nominal.light_mib, light_part_mib),
        )
        if cards and mib is not None and mib > part_mib
    ]
    return "; ".join(notes)


def unset(engine: Engine, caller: Caller, name: str) -> QuotaView:
    _require_admin(caller, name)
    if name not in engine.store.quotas():
        raise GpuqueueError(ErrorCode.NOT_FOUND, f"no quota is set for {name!r}", "see `gq quota`")
    with engine.store.transaction():
        engine.store.set_quota(name, None)
        engine.event("quota", caller.user, f"quota of {name} unset: the default counts again")
    return view(engine, name)


def _require_admin(caller: Caller, name: str) -> None:
    if not caller.admin:
        raise GpuqueueError(
            ErrorCode.NOT_PERMITTED,
            f"only an admin may change the quota of {name}; you are {caller.user}",
            "admins are root and the members of the daemon's admin group",
        )
    if not name or len(name) > 200 or not name.isprintable():
        raise GpuqueueError(ErrorCode.INVALID, f"{name!r} is not an account", "name a user")
