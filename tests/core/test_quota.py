"""Q1, Q2, M2, M3: whose quota, how much of a card, what is foreign."""

import pytest

from gpuqueue.core.capacity import capacity_mib, foreign_mib, held_back_mib
from gpuqueue.core.ledger import Ledger
from gpuqueue.core.policy import IdlePolicy, Nominal, Policy, QuotaPolicy
from gpuqueue.core.quota import resolve
from gpuqueue.wire.states import JobClass
from tests.builders import GIB, lease, running, snapshot

CARDS = [(24 * GIB, 6 * GIB), (32607, 8704)]
POLICY = Policy(
    quota=QuotaPolicy(
        default=Nominal(light_mib=1 * GIB),
        groups={"lab": Nominal(train_mib=10 * GIB), "phd": Nominal(train_mib=12 * GIB, light_mib=0)},
        users={"cara": Nominal(train_mib=5 * GIB)},
        weights={"cara": 3},
    ),
    idle=IdlePolicy(exempt_accounts=frozenset({"cara"})),
)


@pytest.mark.parametrize(
    "who, groups, set_by_admin, train_mib, light_mib, source",
    [
        ("anna", [], {}, 32607 - 8704, 1 * GIB, "default"),
        ("anna", ["lab", "users"], {}, 10 * GIB, 1 * GIB, "train group lab, light default"),
        ("anna", ["lab", "phd"], {}, 12 * GIB, 0, "group phd"),
        ("cara", ["phd"], {}, 5 * GIB, 0, "train set for the user, light group phd"),
        ("cara", [], {"cara": Nominal(train_mib=7 * GIB, light_mib=2 * GIB)}, 7 * GIB, 2 * GIB, "set for the user"),
        ("cara", [], {"cara": Nominal(train_mib=0)}, 0, 1 * GIB, "train set for the user, light default"),
    ],
)
def test_nearest_level_wins(
    who: str, groups: list[str], set_by_admin: dict[str, Nominal], train_mib: int, light_mib: int, source: str
) -> None:
    account, told = resolve(who, groups, set_by_admin, POLICY, CARDS)
    assert (account.name, account.train_mib, account.light_mib, told) == (who, train_mib, light_mib, source)


def test_weight_and_exemption_come_with_the_account() -> None:
    cara, _ = resolve("cara", [], {}, POLICY, CARDS)
    anna, _ = resolve("anna", [], {}, POLICY, CARDS)
    assert (cara.weight, cara.idle_exempt, anna.weight, anna.idle_exempt) == (3, True, 1, False)


def test_without_cards_the_default_is_nothing() -> None:
    assert resolve("anna", [], {}, Policy(), [])[0].train_mib == 0


@pytest.mark.parametrize(
    "policy, capacity, held",
    [
        (QuotaPolicy(), 32607, 8704),
        (QuotaPolicy(), 32510, 8704),
        (QuotaPolicy(), 24564, 6656),
        (QuotaPolicy(held_back_percent=0), 32607, 0),
        (QuotaPolicy(held_back_mib=10 * GIB), 32607, 10 * GIB),
        (QuotaPolicy(held_back_mib=10 * GIB), 8 * GIB, 8 * GIB),
    ],
)
def test_held_back(policy: QuotaPolicy, capacity: int, held: int) -> None:
    assert held_back_mib(policy, capacity) == held


def test_capacity_is_what_is_left_of_the_total() -> None:
    assert capacity_mib(46068, 450, 0) == 45618
    assert capacity_mib(32607, 0, 607) == 32000
    assert capacity_mib(100, 50, 100) == 0


@pytest.mark.parametrize(
    "used, measured, hidden, foreign",
    [
        (21504, [], False, 21504),
        (12000, [8000, None, 3000], False, 1000),
        (5000, [8000], False, 0),  # the readings are a moment apart
        (21504, [None], True, 0),  # M4
    ],
)
def test_foreign(used: int, measured: list[int | None], hidden: bool, foreign: int) -> None:
    assert foreign_mib(used, measured, hidden) == foreign


def test_used_counts_charges_of_one_account_and_class() -> None:
    mine, grown = running(1, 4 * GIB), running(2, 2 * GIB)
    light = running(3, 1 * GIB, job_class=JobClass.LIGHT)
    other = running(4, 1 * GIB, user="ben")
    leases = [lease(mine, releasing=True), lease(grown, charge_mib=3 * GIB), lease(light), lease(other)]
    ledger = Ledger.of(snapshot(leases=leases))
    assert ledger.used_mib("anna", JobClass.TRAIN) == 7 * GIB
    assert ledger.used_mib("anna", JobClass.LIGHT) == 1 * GIB
    assert ledger.held_mib("anna") == 8 * GIB
