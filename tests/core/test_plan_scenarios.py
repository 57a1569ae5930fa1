"""Exact tables: what the plan decides in the situations that people meet."""

from dataclasses import replace
from time import process_time
from typing import Any

import pytest

from gpuqueue.core.apply import apply
from gpuqueue.core.capacity import capacity_mib, foreign_mib, held_back_mib
from gpuqueue.core.decisions import Plan
from gpuqueue.core.model import Job
from gpuqueue.core.plan import plan
from gpuqueue.core.policy import Placement, PlacePolicy, Policy, QuotaPolicy
from gpuqueue.core.quota import resolve
from gpuqueue.core.reasons import ReasonCode, sentence
from gpuqueue.core.snapshot import Card, Snapshot, Stranger
from gpuqueue.wire.states import JobClass, JobState
from tests.builders import CARD_MIB, GIB, NOW, account, card, job, lease, running, snapshot
from tests.core.worlds import CANCEL

RICH = 10**6


def started(decided: Plan) -> list[int]:
    return [start.job_id for start in decided.starts]


def decide(*jobs: Job, policy: Policy | None = None, **world: Any) -> Plan:
    return plan(snapshot(jobs=jobs, **world), policy or Policy())


def why(decided: Plan, job_id: int) -> str:
    return sentence(decided.verdicts[job_id])


def test_scenario_6_twenty_submits_at_once_start_three() -> None:
    """M3: the claims of what has only just started count, though nothing is allocated."""
    at_once = snapshot(
        cards=[card(held_back_mib=0)],
        jobs=[job(id, 10 * GIB) for id in range(1, 21)],
        accounts=[account(train_mib=RICH)],
    )
    decided = plan(at_once, Policy())
    assert started(decided) == [1, 2, 3]
    assert plan(apply(at_once, decided), Policy()).starts == ()


def test_scenario_7_rounding() -> None:
    """M2: 46068 MiB of which 450 are reserved hold 22 jobs of 2000 MiB; a 23rd would need 46000 of 45618."""
    capacity = capacity_mib(46068, 450, 0)
    decided = decide(
        *(job(id, 2000) for id in range(1, 25)),
        cards=[card(0, capacity, 0)],
        accounts=[account(train_mib=RICH)],
    )
    assert started(decided) == list(range(1, 23))
    assert set(decided.verdicts) == {23, 24}


def test_scenario_8_an_allocated_claim_counts_once() -> None:
    """M3: 12 GiB claimed, 12 GiB measured with its children, used as NVML says: F is 0 and the rest is free."""
    holder = running(1, 12 * GIB, user="ben")
    measured = 12 * GIB
    foreign = foreign_mib(used_mib=measured, measured_mib=[measured])
    node = card(0, held_back_mib=0, used_mib=measured, foreign_mib=foreign)
    world: dict[str, Any] = {"cards": [node], "leases": [lease(holder, node, measured_mib=measured)]}
    accounts = [account("anna", RICH), account("ben", RICH)]
    left = CARD_MIB - 12 * GIB
    assert foreign == 0
    assert started(decide(holder, job(2, left), accounts=accounts, **world)) == [2]
    assert started(decide(holder, job(2, left + 1), accounts=accounts, **world)) == []


def test_measured_beyond_its_charge_is_not_free() -> None:
    """M3: what physically fits is judged by max(charge, measured)."""
    holder = running(1, 8 * GIB, user="ben")
    over = lease(holder, measured_mib=20 * GIB)
    node = card(held_back_mib=0, used_mib=20 * GIB)
    assert started(decide(holder, job(2, 13 * GIB), cards=[node], leases=[over])) == []
    assert started(decide(holder, job(2, 11 * GIB), cards=[node], leases=[over])) == [2]


def test_scenario_10_whoever_a_stranger_or_a_quota_blocks_blocks_nobody() -> None:
    """S4, F1."""
    stranger = Stranger(pid=4242, user="eve", command="python notebook.py", used_mib=21 * GIB)
    node = card(held_back_mib=0, foreign_mib=21 * GIB, strangers=(stranger,))
    decided = decide(job(1, 20 * GIB), job(2, 22 * GIB, user="ben"), job(3, 4 * GIB, user="cara"), cards=[node])
    assert started(decided) == [3]
    assert why(decided, 1) == (
        "needs 20.0 GiB on one card: 21.0 GiB of card 0 is held outside the queue by "
        "pid 4242 of eve (python notebook.py, 21.0 GiB)"
    )

    busy = running(1, 8 * GIB)
    decided = decide(busy, job(2, 8 * GIB), job(3, 8 * GIB, user="ben"), accounts=[account("anna", 10 * GIB)])
    assert started(decided) == [3]
    assert why(decided, 2) == (
        "anna uses 8.0 GiB of its 10.0 GiB train quota; 8.0 GiB more does not fit: job 1 of anna 8.0 GiB for 10m00s"
    )
    assert decided.expected_at[2] == NOW - 600 + busy.limit_s


def test_scenario_12_one_job_does_not_wait_behind_five_hundred() -> None:
    """S1: VRAM for one more frees, and it is ben's, who has held nothing, whatever was submitted first."""
    flood = [job(id, 10 * GIB) for id in range(10, 510)]
    late = job(600, 10 * GIB, user="ben")
    node = card(held_back_mib=0)
    accounts = [account("anna", RICH, usage=5000), account("ben", RICH)]
    holders = [running(1, 10 * GIB), running(2, 10 * GIB)]
    assert started(decide(*holders, *flood, late, cards=[node], accounts=accounts)) == [600]


def test_scenario_12_within_one_plan_starts_move_their_account_back() -> None:
    """S1: nobody has used anything yet; the first is anna's, then ben's turn has come."""
    flood = [job(id, 10 * GIB) for id in range(10, 510)]
    late = job(600, 10 * GIB, user="ben")
    node = card(held_back_mib=0)
    accounts = [account("anna", RICH), account("ben", RICH)]
    assert started(decide(*flood, late, cards=[node], accounts=accounts)) == [10, 600, 11]
    just_started = [running(1, 10 * GIB), running(2, 10 * GIB)]
    assert started(decide(*just_started, *flood, late, cards=[node], accounts=accounts)) == [600]


def test_a_start_adds_its_claim_times_its_limit_at_once() -> None:
    """S1: anna has used a little less than ben, and after one start a lot more."""
    node = card(held_back_mib=0)
    accounts = [account("anna", RICH, usage=5), account("ben", RICH, usage=7)]
    jobs = [job(1, 10 * GIB), job(2, 10 * GIB), job(3, 10 * GIB, user="ben")]
    assert started(decide(*jobs, cards=[node], accounts=accounts))[:2] == [1, 3]
    heavy = replace(accounts[0], weight=10**9)  # a weight that makes of it next to nothing
    assert started(decide(*jobs, cards=[node], accounts=[heavy, accounts[1]]))[:2] == [1, 2]


@pytest.fixture
def lab() -> Snapshot:
    """The lab's example: 20G train and 10G light an account, 10G of the card held back."""
    rules = QuotaPolicy(held_back_mib=10 * GIB)
    node = card(0, CARD_MIB, held_back_mib(rules, CARD_MIB))
    return snapshot(cards=[node], accounts=[account(name, 20 * GIB, 10 * GIB) for name in ("anna", "ben")])


def test_lab_train_jobs_leave_the_light_part_alone(lab: Snapshot) -> None:
    """Q2, Q3: 20 GiB of one account and the card less 10 GiB bound train jobs; 9 GiB light start beside them."""
    jobs = (
        job(1, 20 * GIB),
        job(2, 1 * GIB),
        job(3, 3 * GIB, user="ben"),
        job(4, 9 * GIB, user="ben", job_class=JobClass.LIGHT),
        job(5, 2 * GIB, user="anna", job_class=JobClass.LIGHT),
    )
    decided = plan(replace(lab, jobs=jobs), Policy())
    assert started(decided) == [1, 4]
    assert decided.verdicts[2].code is ReasonCode.QUOTA
    assert why(decided, 3) == (
        "needs 3.0 GiB on one card, 1.8 GiB is free for train jobs: job 1 of anna 20.0 GiB for under a minute, "
        "job 4 of ben 9.0 GiB for under a minute"
    )
    assert why(decided, 5).startswith("needs 2.0 GiB, 1.0 GiB is free for light jobs: 10.0 GiB of card 0 is held back")


def test_default_policy_runs_22_gib_by_right_beside_a_display_server() -> None:
    """Q2: on 32607 MiB H is 8.5 GiB, and the train quota the rest."""
    held = held_back_mib(QuotaPolicy(), CARD_MIB)
    whole, source = resolve("anna", [], {}, Policy(), [(CARD_MIB, held)])
    assert (held, whole.train_mib, whole.light_mib, source) == (8704, 23903, 8704, "default")
    for display_mib, starts in ((1375, [1]), (1376, [])):  # 32607 - 22528 - 8704
        node = card(0, CARD_MIB, held, foreign_mib=display_mib)
        assert started(decide(job(1, 22 * GIB), cards=[node], accounts=[whole])) == starts


def test_light_jobs_have_a_right_to_their_part_but_not_to_what_a_stranger_holds() -> None:
    """Q3: T + L + claim + F <= C, always."""
    light = job(1, 4 * GIB, job_class=JobClass.LIGHT)
    for foreign, starts in ((CARD_MIB - 4 * GIB, [1]), (CARD_MIB - 4 * GIB + 1, [])):
        assert started(decide(light, cards=[card(foreign_mib=foreign)])) == starts


def test_blocked_by_vram_blocks_later_jobs_of_its_class_only() -> None:
    """S4, S5: job 2 waits for job 1's VRAM; behind it a smaller train job waits, a light one does not."""
    decided = decide(
        running(1, 16 * GIB, user="ben"),
        job(2, 10 * GIB),
        job(3, 1 * GIB, user="cara"),
        job(4, 1 * GIB, user="cara", job_class=JobClass.LIGHT),
    )
    assert started(decided) == [4]
    assert (
        why(decided, 2)
        == (
            "needs 10.0 GiB, 7.3 GiB is free for train jobs: 8.5 GiB of card 0 is held back for light jobs; "
            "job 1 of ben 16.0 GiB for 10m00s, job 4 of cara 1.0 GiB for under a minute"
        )
        or decided.verdicts[2].code is ReasonCode.HELD_BACK
    )
    assert why(decided, 3).startswith(
        "behind job 2 of anna, which needs 10.0 GiB first: job 1 of ben 16.0 GiB for 10m00s"
    )
    assert decided.expected_at == {2: NOW - 600 + 86400}


def test_no_start_is_foretold_that_somebody_before_it_may_take() -> None:
    """S5: job 3 waits for its quota, but job 2 of another account waits for the same VRAM before it."""
    decided = decide(running(1, 16 * GIB), job(2, 20 * GIB, user="ben"), job(3, 10 * GIB), accounts=[account(usage=9)])
    assert decided.verdicts[3].code is ReasonCode.QUOTA
    assert set(decided.expected_at) == {2}


@pytest.mark.parametrize(
    "changes, free_in_s",
    [
        ({"ran_s": 3600}, 86400 - 600 - 3600),
        ({"state": JobState.STOPPING, "stop": replace(CANCEL, grace_s=90, asked_at=NOW - 30)}, 60),
    ],
)
def test_expected_start_is_when_the_holder_must_have_gone(changes: dict[str, Any], free_in_s: int) -> None:
    """S5, Z2, Z4."""
    decided = decide(running(1, 16 * GIB, user="ben", **changes), job(2, 20 * GIB))
    assert decided.expected_at == {2: NOW + free_in_s}


def test_a_blocked_job_closes_only_the_cards_that_it_waits_for() -> None:
    """S4: job 2 wants card 0 alone; job 3 may have card 1."""
    full = running(1, 20 * GIB, user="ben")
    picky = job(2, 8 * GIB, asking={"gpu_indexes": (0,)})
    assert started(decide(full, picky, job(3, 1 * GIB, user="cara"), cards=[card(0), card(1)])) == [3]


@pytest.mark.parametrize("placement, chosen", [(Placement.PACK, "GPU-1"), (Placement.SPREAD, "GPU-0")])
def test_placement(placement: Placement, chosen: str) -> None:
    """P1: best fit keeps large holes; spread takes the card with the fewest jobs."""
    node = [card(0), card(1)]
    small = running(1, 2 * GIB, user="ben")
    policy = Policy(place=PlacePolicy(placement=placement))
    decided = decide(small, job(2), cards=node, leases=[lease(small, node[1])], policy=policy)
    assert decided.starts[0].cards == (chosen,)


def test_start_keeps_what_the_quota_and_part_were() -> None:
    """Q8."""
    (start,) = decide(job(1, 4 * GIB)).starts
    assert (start.claim_mib, start.nominal_mib, start.held_back_mib) == (4 * GIB, 23903, 8704)


def test_drained_card_takes_nothing() -> None:
    decided = decide(job(1), cards=[card(drained="by root: fan")])
    assert why(decided, 1) == "card 0 is drained: by root: fan"
    assert decide(job(1), cards=[card(drained="fan"), card(1)]).starts[0].cards == ("GPU-1",)
    both = decide(job(1), cards=[card(1, drained="heat"), card(0, drained="fan")])
    assert why(both, 1) == "card 0 is drained: fan"


def test_unreadable_cards_start_nothing_that_needs_one() -> None:
    decided = decide(job(1), job(2, 0), cards_fault="driver/library version mismatch")
    assert started(decided) == [2]
    assert why(decided, 1) == "the cards cannot be read: driver/library version mismatch"
    assert started(decide(job(1), job(2, 0), cards=[], cards_fault="no driver")) == [2]


def test_a_job_without_a_card_starts_whatever_is_full() -> None:
    """P2, scenario 18."""
    decided = decide(running(1, 23 * GIB), job(2, 0))
    assert [(start.job_id, start.cards, start.claim_mib) for start in decided.starts] == [(2, (), 0)]
    assert started(decide(job(1, 0, held=True))) == []


def test_hold_pause_and_cancel_are_said() -> None:
    """S5, R1."""
    paused = job(2, state=JobState.BACKOFF, not_before=NOW + 20)
    decided = decide(job(1, held=True), paused)
    assert started(decided) == []
    assert why(decided, 1) == "on hold by anna"
    assert why(decided, 2) == "failed; next try in 20s (failures in a row: 0)"
    assert started(decide(replace(paused, not_before=NOW))) == [2]


def test_one_job_at_a_time_saves_into_a_directory() -> None:
    """R2: the second waits from the first one's start until its end, its pauses included, and closes no card."""
    asking = {"checkpoint_dir": "/out"}
    decided = decide(job(1, asking=asking), job(2, asking=asking), job(3), job(4, 0, asking=asking))
    assert started(decided) == [4, 3], "the one without a card starts at once, and the directory is its own"
    assert why(decided, 1).startswith("job 4 of anna saves into the same checkpoint directory")
    paused = job(1, asking=asking, state=JobState.BACKOFF, not_before=NOW + 20, attempt=1)
    decided = decide(job(2, asking=asking), paused, job(3, asking={"checkpoint_dir": "/other"}))
    assert started(decided) == [3]
    assert why(decided, 2).startswith("job 1 of anna saves into")
    assert started(decide(job(2, asking=asking), replace(paused, not_before=NOW))) == [1]
    assert started(decide(job(2, asking=asking), replace(paused, state=JobState.FAILED))) == [2]


def test_nobody_is_kept_waiting_by_who_names_his_checkpoint_directory() -> None:
    """R2: the paused job of another user begun first; only his own next job waits."""
    asking = {"checkpoint_dir": "/out"}
    thief = job(1, user="eve", asking=asking, state=JobState.BACKOFF, not_before=NOW + 20, attempt=1)
    decided = decide(
        thief, job(2, asking=asking), job(3, user="eve", asking=asking), accounts=[account("anna"), account("eve")]
    )
    assert started(decided) == [2]
    assert why(decided, 3).startswith("job 1 of eve saves into the same checkpoint directory")


def test_a_job_that_a_change_made_impossible_stays_with_that_verdict() -> None:
    """Q5: the quota was lowered after the submit."""
    decided = decide(job(1, 20 * GIB), job(2, 2 * GIB), accounts=[account("anna", 8 * GIB)])
    assert started(decided) == [2]
    assert why(decided, 1) == (
        "can no longer run here: 20.0 GiB is more than anna may ever hold with train jobs: the quota is 8.0 GiB"
    )


def test_most_tenants() -> None:
    """P1: said as such, and it blocks nobody."""
    policy = Policy(place=PlacePolicy(max_tenants=1))
    decided = decide(running(1, 2 * GIB, user="ben"), job(2, 2 * GIB), policy=policy)
    assert why(decided, 2) == (
        "card 0 already has 1 tenant, the most the admin allows: job 1 of ben 2.0 GiB for 10m00s"
    )


def hidden(used_mib: int) -> Card:
    return card(held_back_mib=0, hidden=True, used_mib=used_mib)


def test_hidden_processes_admission_by_free_memory() -> None:
    """M4: 20 GiB are used by whomever; 12 GiB fit, 13 do not."""
    assert started(decide(job(1, 11 * GIB), cards=[hidden(20 * GIB)])) == [1]
    assert started(decide(job(1, 13 * GIB), cards=[hidden(20 * GIB)])) == []


def test_hidden_processes_a_new_start_counts_on_top_until_it_must_have_settled() -> None:
    """M4, M3: nobody can see whether the 5 GiB in use are the job's or a stranger's."""
    holder = running(1, 20 * GIB, user="ben")
    new = lease(holder, measured_mib=None, started_at=NOW - 1)
    settled = replace(new, started_at=NOW - 600)
    assert started(decide(holder, job(2, 8 * GIB), cards=[hidden(5 * GIB)], leases=[new])) == []
    assert started(decide(holder, job(2, 8 * GIB), cards=[hidden(20 * GIB)], leases=[settled])) == [2]


def test_vram_of_an_ended_job_is_not_free_before_it_is_measured_free() -> None:
    """Z3: the job is gone from the queue, its lease is not."""
    gone = running(1, 20 * GIB, user="ben")
    decided = decide(job(2, 20 * GIB), leases=[lease(gone, releasing=True)])
    assert started(decided) == []
    assert decided.expected_at == {2: NOW}
    assert "job 1 of ben 20.0 GiB for 10m00s, ended but not yet measured free" in why(decided, 2)


def test_vram_of_a_job_in_its_pause_is_free_soon() -> None:
    """Z3, S5: its attempt has ended, so its limit says nothing."""
    fallen = job(1, 20 * GIB, user="ben", state=JobState.BACKOFF, not_before=NOW + 60)
    decided = decide(fallen, job(2, 20 * GIB), leases=[lease(fallen, releasing=True)])
    assert decided.expected_at == {2: NOW}


def test_of_two_alike_the_second_is_behind_the_first() -> None:
    decided = decide(running(1, 16 * GIB, user="ben"), job(2, 20 * GIB), job(3, 20 * GIB))
    assert (decided.verdicts[2].code, decided.verdicts[3].code) == (ReasonCode.VRAM, ReasonCode.BEHIND)


def test_a_card_whose_numbers_cannot_be_read_is_no_small_card() -> None:
    """A lost card reads 0: its jobs wait for it rather than being called impossible."""
    poor = [account(train_mib=0)]  # the default quota of an unreadable card
    decided = decide(job(1, 20 * GIB), cards=[card(0, 0, 0, drained="GPU is lost")], accounts=poor)
    assert why(decided, 1) == "card 0 is drained: GPU is lost"
    assert decide(job(1), cards=[card(0, 0, 0)]).verdicts[1].code is ReasonCode.CARDS_UNREADABLE


def test_holders_beyond_three_are_counted() -> None:
    crowd = [running(id, id * GIB, user="ben") for id in range(1, 6)]
    decided = decide(*crowd, job(9, 20 * GIB), cards=[card(held_back_mib=0)], accounts=[account("ben", RICH)])
    assert why(decided, 9) == (
        "needs 20.0 GiB on one card, 16.8 GiB is free for train jobs: job 5 of ben 5.0 GiB for 10m00s, "
        "job 4 of ben 4.0 GiB for 10m00s, job 3 of ben 3.0 GiB for 10m00s, 2 more jobs 3.0 GiB"
    )


def test_priority_and_requeued_ahead() -> None:
    """S1, Q6."""
    node = [card(held_back_mib=0)]
    rich = [account("anna", RICH, usage=9), account("ben", RICH)]
    urgent = job(3, 20 * GIB, priority=1)
    assert started(decide(job(1, 20 * GIB, user="ben"), urgent, cards=node, accounts=rich)) == [3]
    victim = job(3, 20 * GIB, requeue_rank=-1)
    assert started(decide(job(2, 20 * GIB), victim, cards=node, accounts=rich)) == [3]


def test_a_thousand_waiting_jobs_take_little_time() -> None:
    """The plan is made every second. Processor time, not wall time: a busy machine does not matter."""
    crowd = [job(id, (1 + id % 7) * 3 * GIB, user=f"u{id % 40}") for id in range(1, 1001)]
    world = snapshot(cards=[card(0), card(1)], jobs=crowd)
    before = process_time()
    plan(world, Policy())
    assert process_time() - before < 0.5
