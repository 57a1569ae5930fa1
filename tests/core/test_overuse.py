"""O1, Q8: the charge follows growth, and the one that grew is stopped, never its neighbour."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gpuqueue.core.decisions import Charge, Stop
from gpuqueue.core.model import AfterStop, Job
from gpuqueue.core.overuse import judge
from gpuqueue.core.policy import OverusePolicy
from gpuqueue.core.reasons import fields_of, sentence
from gpuqueue.core.snapshot import Card
from gpuqueue.wire.states import JobClass, JobState
from tests.builders import GIB, account, attempt, card, job, lease, running, snapshot
from tests.core.worlds import CANCEL

RICH = 99 * GIB
MEASURED = {1: int(14.2 * GIB)}


def decide(
    jobs: Sequence[Job],
    measured: Mapping[int, int | None],
    *,
    samples: int = 1,
    node: Card | None = None,
    charged: dict[int, int] | None = None,
    then: dict[str, Any] | None = None,
    accounts: Sequence[Any] = (account(train_mib=RICH), account("ben", RICH)),
) -> tuple[list[Charge], list[Stop]]:
    """`samples` so far over; `charged` and `measured` by job id; `then` is what held when the attempts started."""
    leases = [
        lease(
            one,
            measured_mib=measured.get(one.id, one.claim_mib),
            charge_mib=(charged or {}).get(one.id, one.claim_mib),
        )
        for one in jobs
    ]
    attempts = {
        one.id: attempt(one, [held], over_samples=samples if one.id in measured else 0, **(then or {}))
        for one, held in zip(jobs, leases, strict=True)
        if one.state.active
    }
    world = snapshot(
        cards=[node or card(held_back_mib=0)], jobs=jobs, leases=leases, attempts=attempts, accounts=accounts
    )
    return judge(world, OverusePolicy())


def test_the_first_sample_over_is_only_counted() -> None:
    charges, stops = decide([running(1, 8 * GIB)], MEASURED, samples=0)
    assert [(c.charge_mib, c.over_samples, c.text) for c in charges] == [(8 * GIB, 1, "")]
    assert stops == []


def test_from_the_second_on_the_charge_follows() -> None:
    charges, stops = decide([running(1, 8 * GIB)], MEASURED)
    (charge,) = charges
    assert (charge.charge_mib, charge.claim_mib, charge.over_samples) == (MEASURED[1], MEASURED[1], 2)
    assert charge.text == ("declared 8.0 GiB, uses 14.2 GiB: charged for that, and the next attempt will claim it")
    assert stops == []
    again = decide([running(1, 8 * GIB)], {1: 13 * GIB}, samples=2, charged={1: MEASURED[1]})
    assert [(c.charge_mib, c.text) for c in again[0]] == [(13 * GIB, "")]
    more = decide([running(1, 8 * GIB)], {1: 16 * GIB}, samples=2, charged={1: MEASURED[1]})
    assert [(c.charge_mib, c.text) for c in more[0]] == [(16 * GIB, "")], "it was said when it began"
    assert decide([running(1, 8 * GIB)], MEASURED, samples=2, charged={1: MEASURED[1]}) == ([], [])


def test_one_sample_within_ends_the_count() -> None:
    charges, _ = decide([running(1, 8 * GIB)], {1: 8 * GIB}, samples=1)
    assert [(c.charge_mib, c.over_samples) for c in charges] == [(8 * GIB, 0)]


@pytest.mark.parametrize(
    "claim_mib, over_mib, used_mib, counted",
    [
        (4 * GIB, 512, 8 * GIB, False),
        (4 * GIB, 513, 8 * GIB, True),
        (20 * GIB, 1024, 22 * GIB, False),  # 5 %
        (20 * GIB, 1025, 22 * GIB, True),
        (4 * GIB, 1, 32607 - 256, False),
        (4 * GIB, 1, 32607 - 255, True),  # the card is tight
    ],
)
def test_tolerance(claim_mib: int, over_mib: int, used_mib: int, counted: bool) -> None:
    node = card(held_back_mib=0, used_mib=used_mib)
    charges, _ = decide([running(1, claim_mib)], {1: claim_mib + over_mib}, samples=0, node=node)
    assert bool(charges) is counted


def test_scenario_2_the_offender_is_stopped_not_its_neighbour() -> None:
    """8 GiB declared, 14.2 held, and with the neighbour's 22 GiB that is more than the card."""
    (charge,), (stop,) = decide([running(1, 8 * GIB), running(2, 22 * GIB, user="ben")], MEASURED)
    assert (stop.job_id, stop.after, stop.grace_s) == (1, AfterStop.STOP, 10)
    assert sentence(stop.reason) == "declared 8.0 GiB, used 14.2 GiB while card 0 was over-committed"
    assert charge.text == "", "what its next attempt claims is nothing to say to who is stopped"
    assert set(stop.reason.fields) == fields_of(stop.reason.code)


def test_of_two_growers_the_larger_growth_goes_and_spares_the_other() -> None:
    jobs = [running(1, 8 * GIB), running(2, 8 * GIB, user="ben"), running(3, 10 * GIB, user="ben")]
    _, stops = decide(jobs, {1: 14 * GIB, 2: 10 * GIB})
    assert [stop.job_id for stop in stops] == [1]


def test_growth_past_the_quota_stops_the_grower() -> None:
    jobs = [running(1, 8 * GIB), running(2, 4 * GIB), running(3, 4 * GIB, user="ben")]
    accounts = [account(train_mib=16 * GIB), account("ben", RICH)]
    _, (stop,) = decide(jobs, MEASURED, accounts=accounts, then={"nominal_mib": 0})
    assert stop.job_id == 1
    assert sentence(stop.reason) == (
        "declared 8.0 GiB, used 14.2 GiB: anna's train quota of 16.0 GiB leaves it 12.0 GiB"
    )
    assert set(stop.reason.fields) == fields_of(stop.reason.code)


def test_growth_within_quota_and_part_stops_nobody() -> None:
    accounts = [account(train_mib=18 * GIB + 300)]
    jobs = [running(1, 8 * GIB), running(2, 4 * GIB)]
    assert decide(jobs, MEASURED, accounts=accounts, then={"nominal_mib": 0})[1] == []


@pytest.mark.parametrize("job_class, held_back", [(JobClass.TRAIN, 22 * GIB), (JobClass.LIGHT, 12 * GIB)])
def test_growth_past_the_part_of_its_class_stops_the_grower(job_class: JobClass, held_back: int) -> None:
    accounts = [account(train_mib=RICH, light_mib=RICH)]
    node = card(held_back_mib=held_back)
    grower = running(1, 8 * GIB, job_class=job_class)
    _, (stop,) = decide([grower], MEASURED, accounts=accounts, node=node, then={"held_back_mib": held_back})
    assert stop.job_id == 1
    assert f": what card 0 has for {job_class} jobs (" in sentence(stop.reason)


def test_what_was_lowered_since_the_start_stops_nobody() -> None:
    """Q8."""
    grower = running(1, 8 * GIB)
    poor = [account(train_mib=1 * GIB)]
    node = card(held_back_mib=30 * GIB)
    then = {"nominal_mib": RICH, "held_back_mib": 0}
    assert decide([grower], MEASURED, accounts=poor, node=node, then=then)[1] == []
    assert decide([grower], {}, accounts=poor, node=node)[1] == []


@pytest.mark.parametrize("now_mib, then_mib, stopped", [(16, 0, []), (0, 16, []), (12, 12, [1])])
def test_a_light_job_has_the_better_of_both_parts(now_mib: int, then_mib: int, stopped: list[int]) -> None:
    """Q8."""
    grower = running(1, 8 * GIB, job_class=JobClass.LIGHT)
    accounts = [account(light_mib=RICH)]
    node = card(held_back_mib=now_mib * GIB)
    _, stops = decide([grower], MEASURED, accounts=accounts, node=node, then={"held_back_mib": then_mib * GIB})
    assert [stop.job_id for stop in stops] == stopped


def test_nobody_is_stopped_who_did_not_grow() -> None:
    """A smaller capacity (margin, other driver) is not the jobs' fault."""
    jobs = [running(1, 8 * GIB), running(2, 8 * GIB)]
    assert decide(jobs, {}, node=card(0, 10 * GIB, 0)) == ([], [])


@pytest.mark.parametrize(
    "grower, node, measured",
    [
        (running(1, 8 * GIB), card(held_back_mib=0, hidden=True), MEASURED),  # M4
        (running(1, 8 * GIB), None, {1: None}),
        (running(1, 8 * GIB, stop=CANCEL), None, MEASURED),
        (running(1, 8 * GIB, state=JobState.STOPPING), None, MEASURED),
        (job(1, 8 * GIB), None, MEASURED),  # ended meanwhile, its lease not yet free
    ],
)
def test_left_alone(grower: Job, node: Card | None, measured: Mapping[int, int | None]) -> None:
    assert decide([grower], measured, node=node) == ([], [])


def test_who_is_leaving_already_makes_room() -> None:
    """The neighbour of 22 GiB is being stopped: what stays fits."""
    leaving = running(2, 22 * GIB, user="ben", stop=CANCEL, state=JobState.STOPPING)
    assert decide([running(1, 8 * GIB), leaving], MEASURED)[1] == []


def test_two_looks_within_one_second_are_one_sample() -> None:
    world = snapshot()
    assert decide([running(1, 8 * GIB)], MEASURED, then={"over_at": world.now}) == ([], [])
    charges, _ = decide([running(1, 8 * GIB)], MEASURED, then={"over_at": world.now - 1})
    assert [charge.over_samples for charge in charges] == [2]
