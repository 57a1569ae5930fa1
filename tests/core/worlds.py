"""Random snapshots: several cards, accounts and jobs, over-committed and half-broken ones included."""

from typing import Any

from hypothesis import strategies as st

from gpuqueue.core.model import AfterStop, Job, StopIntent
from gpuqueue.core.policy import Placement, PlacePolicy, Policy
from gpuqueue.core.reasons import Reason, ReasonCode
from gpuqueue.core.snapshot import Card, Lease, Snapshot, Stranger
from gpuqueue.wire.states import JobClass, JobState
from tests.builders import GIB, NOW, account, card, job, lease, snapshot

NAMES = ("anna", "ben", "cara", "dov")
CANCEL = StopIntent(
    reason=Reason(ReasonCode.CANCELLED, {"actor": "anna"}),
    actor="anna",
    after=AfterStop.CANCEL,
    grace_s=0,
    asked_at=NOW,
)
claims = st.one_of(st.integers(1, 34 * GIB), st.sampled_from([1 * GIB, 2 * GIB, 4 * GIB, 8 * GIB, 22 * GIB]))

directories = st.sampled_from([None, None, None, "/out/a", "/out/b"])


@st.composite
def cards(draw: st.DrawFn, index: int) -> Card:
    capacity_mib = draw(st.sampled_from([8 * GIB, 24 * GIB, 32607, 32607, 46068, 46068, 0]))
    foreign_mib = draw(st.one_of(st.just(0), st.integers(0, capacity_mib)))
    hidden = draw(st.booleans())
    return card(
        index,
        capacity_mib,
        draw(st.integers(0, capacity_mib // 1024)) * 512,
        foreign_mib=0 if hidden else foreign_mib,
        used_mib=foreign_mib,
        hidden=hidden,
        name=draw(st.sampled_from(["NVIDIA A100", "NVIDIA RTX A6000"])),
        drained=draw(st.sampled_from([None, None, None, "by admin: swap"])),
        strangers=(Stranger(pid=99, user="eve", command="python", used_mib=foreign_mib),) if foreign_mib else (),
    )


@st.composite
def waiting(draw: st.DrawFn, id: int) -> Job:
    asking: dict[str, Any] = {
        "gpu_type": draw(st.sampled_from([None, None, "a100", "h100"])),
        "gpu_indexes": draw(st.sampled_from([(), (), (0,), (1,), (5,)])),
        "limit_s": draw(st.sampled_from([600, 86400])),
        "exclusive": draw(st.sampled_from([False] * 9 + [True])),
        "checkpoint_dir": draw(directories),
    }
    claim_mib = draw(st.one_of(claims, claims, claims, st.just(0)))
    if claim_mib and draw(st.integers(0, 9)) == 0:
        asking["cards"] = 2
    state = draw(st.sampled_from([JobState.QUEUED, JobState.QUEUED, JobState.BACKOFF]))
    return job(
        id,
        claim_mib,
        user=draw(st.sampled_from(NAMES)),
        job_class=draw(st.sampled_from(JobClass)),
        state=state,
        asking=asking,
        queued_at=NOW - draw(st.integers(0, 5)),
        priority=draw(st.sampled_from([0, 0, 0, 5])),
        requeue_rank=draw(st.sampled_from([0, 0, -1])),
        held=draw(st.integers(0, 9)) == 0,
        not_before=NOW + draw(st.integers(-5, 5)) if state is JobState.BACKOFF else None,
        stop=CANCEL if draw(st.integers(0, 19)) == 0 else None,
        attempt=0 if state is JobState.QUEUED else 1,
    )


@st.composite
def running_with_lease(draw: st.DrawFn, id: int, on: Card) -> tuple[Job, Lease]:
    one = job(
        id,
        draw(st.integers(1, 12 * GIB)),
        user=draw(st.sampled_from(NAMES)),
        job_class=draw(st.sampled_from(JobClass)),
        state=draw(st.sampled_from([JobState.RUNNING, JobState.RUNNING, JobState.STARTING, JobState.STOPPING])),
        stop=CANCEL if draw(st.integers(0, 9)) == 0 else None,
        asking={"checkpoint_dir": draw(directories)},
    )
    charge_mib = one.claim_mib + draw(st.sampled_from([0, 0, 0, 700, 3 * GIB]))
    measured = st.integers(0, charge_mib + 2 * GIB)
    held = lease(
        one,
        on,
        charge_mib=charge_mib,
        measured_mib=None if on.hidden else draw(measured),
        started_at=NOW - draw(st.integers(0, 1000)),
        releasing=draw(st.integers(0, 9)) == 0,
    )
    return one, held


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    node = tuple(draw(cards(index)) for index in range(draw(st.integers(1, 3))))
    running = [
        draw(running_with_lease(100 + number, draw(st.sampled_from(node)))) for number in range(draw(st.integers(0, 5)))
    ]
    jobs = [draw(waiting(number)) for number in range(1, draw(st.integers(0, 10)) + 1)]
    people = [
        account(
            name,
            draw(st.one_of(st.just(0), st.integers(0, 64 * GIB))),
            draw(st.one_of(st.just(0), st.integers(0, 32 * GIB))),
            usage=draw(st.sampled_from([0, 0, 10**6, 10**9])),
            weight=draw(st.sampled_from([1, 1, 3])),
        )
        for name in NAMES
    ]
    fault = draw(st.sampled_from([None] * 9 + ["driver/library version mismatch"]))
    return snapshot(
        cards=node,
        jobs=[*jobs, *(one for one, _ in running)],
        leases=[held for _, held in running],
        accounts=people,
        cards_fault=fault,
    )


policies = st.builds(
    Policy,
    place=st.builds(
        PlacePolicy, placement=st.sampled_from(Placement), max_tenants=st.sampled_from([None, None, None, 1, 3])
    ),
)
