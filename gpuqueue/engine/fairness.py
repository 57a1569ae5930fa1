"""Fair-share bookkeeping: who held how much for how long (rule S1)."""

from gpuqueue.core.fairshare import decayed
from gpuqueue.core.snapshot import Snapshot
from gpuqueue.engine.engine import Engine


def account_use(engine: Engine, snapshot: Snapshot, elapsed_s: int) -> None:
    """Adds the seconds that were observed since the last tick."""
    if elapsed_s <= 0:
        return
    now, half_life_s = engine.clock.second, engine.settings.policy.quota.half_life_s
    held: dict[str, int] = {}
    for lease in snapshot.leases:
        held[lease.account] = held.get(lease.account, 0) + lease.charge_mib
    usage = engine.store.usage()
    changed = {}
    for name, mib in held.items():
        past, at = usage.get(name, (0, now))
        changed[name] = (decayed(past, now - at, half_life_s) + mib * elapsed_s, now)
    if changed:
        engine.store.set_usage(changed)
