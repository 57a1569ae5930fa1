"""Why a waiting job waits (S5): the words and numbers of every verdict, names included."""

from collections.abc import Iterable, Sequence

from gpuqueue.core.ledger import CardLoad, Ledger
from gpuqueue.core.model import Job
from gpuqueue.core.reasons import Reason, ReasonCode, sentence
from gpuqueue.core.snapshot import Account, Lease, Stranger
from gpuqueue.wire.states import JobState
from gpuqueue.wire.units import counted, format_mib, format_seconds

NAMED = 3  # holders named one by one; the rest are counted


def set_aside(job: Job, now: int) -> Reason | None:
    """Why the job is not considered at all at this instant: a stop, a hold, a pause. None if it is."""
    if job.stop is not None:
        return job.stop.reason
    if job.held:
        kept = job.reason if job.reason is not None and job.reason.code is ReasonCode.HOLD else None
        return kept or Reason(ReasonCode.HOLD, {"actor": job.user})
    if job.state is JobState.BACKOFF and job.not_before is not None and job.not_before > now:
        last = sentence(job.reason) if job.reason is not None else "failed"
        fields: dict[str, str | int] = {
            "last": last,
            "wait_s": job.not_before - now,
            "failures": job.restarts.failures_in_row,
        }
        return Reason(ReasonCode.BACKOFF, fields)
    return None


def over_quota(job: Job, account: Account, ledger: Ledger) -> Reason:
    job_class = job.ask.job_class
    own = [lease for lease in ledger.leases() if lease.account == account.name and lease.job_class is job_class]
    return Reason(
        ReasonCode.QUOTA,
        {
            "account": account.name,
            "used_mib": ledger.used_mib(account.name, job_class),
            "nominal_mib": account.nominal(job_class),
            "job_class": job_class,
            "need_mib": job.claim_mib * job.ask.cards,
            "holders": holders(own, ledger.now),
        },
    )


def foreign(job: Job, load: CardLoad) -> Reason:
    return Reason(
        ReasonCode.FOREIGN_VRAM,
        {
            "need_mib": job.claim_mib,
            "foreign_mib": load.outside_mib,
            "card": load.card.index,
            "strangers": strangers(load.card.strangers),
        },
    )


def crowded(load: CardLoad, now: int) -> Reason:
    return Reason(
        ReasonCode.TENANTS,
        {"card": load.card.index, "tenants": load.tenants, "holders": holders(load.leases, now)},
    )


def no_vram(job: Job, loads: Sequence[CardLoad], now: int) -> Reason:
    """Blocked by VRAM on every one of `loads`: named is the card where the least is missing. Where it would
    fit but for the part of the other class, that is what is said."""
    job_class = job.ask.job_class
    load = max(loads, key=lambda load: (load.room_mib(job_class), -load.card.index))
    fields: dict[str, str | int] = {
        "need_mib": job.claim_mib,
        "free_mib": max(0, load.room_mib(job_class)),
        "job_class": job_class,
        "holders": holders(load.leases, now, load),
    }
    if load.free_mib < job.claim_mib:
        return Reason(ReasonCode.VRAM, fields)
    kept: dict[str, str | int] = {"held_back_mib": load.card.held_back_mib, "card": load.card.index}
    return Reason(ReasonCode.HELD_BACK, fields | kept)


def behind(head: Job, blocked: Reason) -> Reason:
    return Reason(
        ReasonCode.BEHIND,
        {
            "head": head.id,
            "head_account": head.account,
            "head_need_mib": head.claim_mib,
            "holders": blocked.fields["holders"],
        },
    )


def holders(leases: Iterable[Lease], now: int, load: CardLoad | None = None) -> str:
    """Who holds it since when: the largest first, at most three by name, then what is outside the queue."""
    largest = sorted(leases, key=lambda lease: (-lease.charge_mib, lease.job_id))
    parts = [_holder(lease, now) for lease in largest[:NAMED]]
    if rest := largest[NAMED:]:
        parts.append(f"{counted(len(rest), 'more job')} {format_mib(sum(lease.charge_mib for lease in rest))}")
    if load is not None and load.outside_mib > 0:
        parts.append(f"{format_mib(load.outside_mib)} outside the queue ({strangers(load.card.strangers)})")
    return ", ".join(parts) or "nobody holds any"


def _holder(lease: Lease, now: int) -> str:
    minutes = max(0, now - lease.started_at) // 60
    since = f"for {format_seconds(minutes * 60)}" if minutes else "for under a minute"
    state = ", ended but not yet measured free" if lease.releasing else ""
    return f"job {lease.job_id} of {lease.account} {format_mib(lease.charge_mib)} {since}{state}"


def strangers(those: Sequence[Stranger]) -> str:
    """Processes outside the queue by name, the largest first."""
    largest = sorted(those, key=lambda stranger: (-(stranger.used_mib or 0), stranger.pid))
    parts = [_stranger(stranger) for stranger in largest[:NAMED]]
    if rest := len(largest) - NAMED:
        parts += [f"{rest} more"] if rest > 0 else []
    return ", ".join(parts) or "processes that the driver does not name"


def _stranger(stranger: Stranger) -> str:
    size = "" if stranger.used_mib is None else f", {format_mib(stranger.used_mib)}"
    return f"pid {stranger.pid} of {stranger.user} ({stranger.command}{size})"
