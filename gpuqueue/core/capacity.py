"""What a card can hold, and what of it belongs to nobody here (M2, M3, M4, Q2)."""

from collections.abc import Iterable

from gpuqueue.core.policy import QuotaPolicy

HALF_GIB_MIB = 512


def capacity_mib(total_mib: int, reserved_mib: int, margin_mib: int) -> int:
    """C: whole MiB that jobs and strangers can hold between them on one card (M2)."""
    return max(0, total_mib - reserved_mib - margin_mib)


def held_back_mib(quota: QuotaPolicy, capacity_mib: int) -> int:
    """H: whole MiB of a card that only light jobs may hold by right (Q2). A percentage is taken down to half
    a GiB; a fixed size never exceeds the card."""
    if quota.held_back_mib is not None:
        return min(quota.held_back_mib, capacity_mib)
    share_mib = capacity_mib * quota.held_back_percent // 100
    return share_mib // HALF_GIB_MIB * HALF_GIB_MIB


def foreign_mib(used_mib: int, measured_mib: Iterable[int | None], hidden: bool = False) -> int:
    """F: whole MiB in use that no job accounts for (M3). `measured_mib` is what each lease on the card was
    measured to hold, its children included; `used_mib` is the driver's figure without what it reserves.
    0 where per-process memory is hidden: M4 forbids to guess, and admission looks at `used_mib` instead."""
    if hidden:
        return 0
    return max(0, used_mib - sum(mib for mib in measured_mib if mib is not None))
