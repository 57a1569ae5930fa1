"""The cycle: observe, decide, act. Nothing that matters is remembered from one tick to the next."""

from gpuqueue.core.apply import apply
from gpuqueue.core.plan import plan
from gpuqueue.core.readings import NodeReading
from gpuqueue.core.supervise import supervise
from gpuqueue.engine import enact, measure, settle
from gpuqueue.engine.engine import Engine
from gpuqueue.engine.fairness import account_use
from gpuqueue.engine.observe import observe


def cycle(engine: Engine, reading: NodeReading, monotonic: float) -> None:
    """One tick. Every write states the state that it expects; a stale one is dropped and comes again."""
    # 1. Time passes, as far as it was observed (Z5).
    before = engine.clock.second
    if engine.clock.advance(monotonic):
        engine.activity.forget_all()

    # 2. Look at every attempt that holds a lease, and settle what ended. VRAM is freed only when measured free.
    uses = engine.backend.uses()
    probes = settle.probe_all(engine)
    uses = settle.with_survivors(uses, probes)
    settle.settle(engine, reading, uses, probes)

    # 3. What every running attempt did since the last look.
    measure.sample(engine, reading, uses, probes)
    snapshot = observe(engine, reading, uses)
    measure.vram(engine, snapshot)

    # 4. What must not go on: the intent is committed before the first signal.
    policy = engine.settings.policy
    enact.supervise(engine, supervise(snapshot, policy))
    enact.carry_out_stops(engine)

    # 5. What may start, given what step 4 left: the lease is committed before the first process.
    snapshot = observe(engine, reading, uses)
    engine.plan = plan(snapshot, policy)
    engine.snapshot = apply(snapshot, engine.plan)  # what people are shown until the next look
    enact.starts(engine, snapshot, engine.plan.starts)

    # 6. Account for the time, and keep the clock.
    account_use(engine, snapshot, engine.clock.second - before)
    engine.keep_clock()
