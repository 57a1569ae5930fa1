"""Q5: what is refused at submit, and with which number."""

from collections.abc import Sequence
from typing import Any

import pytest

from gpuqueue.core.admit import largest_claim_mib, refusal
from gpuqueue.core.policy import Policy
from gpuqueue.core.reasons import fields_of, sentence
from gpuqueue.core.snapshot import Account, Card
from gpuqueue.wire.states import JobClass
from tests.builders import GIB, account, ask, card

POOR = account(train_mib=20 * GIB, light_mib=0)
LIGHT = {"job_class": JobClass.LIGHT}


@pytest.mark.parametrize(
    "claim_mib, asking, who, told",
    [
        (40 * GIB, {}, account(), "40.0 GiB is more than any card has: the largest holds 31.8 GiB"),
        (
            24 * GIB,
            {},
            account(train_mib=99 * GIB),
            (
                "24.0 GiB is more than train jobs may hold on any card: 23.3 GiB, since 8.5 GiB of its 31.8 GiB "
                "is held back for light jobs"
            ),
        ),
        (
            9 * GIB,
            LIGHT,
            account(light_mib=99 * GIB),
            "9.0 GiB is more than light jobs may hold on any card: 8.5 GiB, the part held back for them of 31.8 GiB",
        ),
        (22 * GIB, {}, POOR, "22.0 GiB is more than anna may ever hold with train jobs: the quota is 20.0 GiB"),
        (1 * GIB, LIGHT, POOR, "anna has no quota for light jobs; an admin sets one with gq quota set anna"),
        (1 * GIB, {"cards": 3}, account(), "3 cards are more than the 2 that this node has"),
        (1 * GIB, {"cards": 2}, account(), "2 cards for one job are not offered by this release: ask for one"),
        (
            1 * GIB,
            {"exclusive": True},
            account(),
            (
                "a card for one job alone (--exclusive) is not offered by this release: ask for the VRAM "
                "that the job needs"
            ),
        ),
        (1 * GIB, {"gpu_type": "H100", "gpu_indexes": (0, 4)}, account(), "no card matches --gpu-type H100 --gpu 0,4"),
        (16 * GIB, {"gpu_indexes": (1,)}, account(), "16.0 GiB is more than any card has: the largest holds 8.0 GiB"),
    ],
)
def test_refused_with_the_number_in_the_way(claim_mib: int, asking: dict[str, Any], who: Account, told: str) -> None:
    reason = refusal(ask(claim_mib, **asking), who, [card(0), card(1, 8 * GIB, 2 * GIB)], Policy())
    assert reason is not None
    assert sentence(reason) == told
    assert set(reason.fields) == fields_of(reason.code)


@pytest.mark.parametrize(
    "claim_mib, asking, cards",
    [
        (22 * GIB, {}, [card()]),
        (22 * GIB, {}, [card(foreign_mib=30 * GIB)]),  # a stranger or a display server may go
        (22 * GIB, {}, [card(drained="fan")]),
        (8 * GIB, LIGHT, [card()]),
        (22 * GIB, {"gpu_type": "simulated"}, [card()]),
        (99 * GIB, {}, [card(), card(1, 0, 0)]),
        (99 * GIB, {}, []),  # unreadable now is not absent
        (0, {}, []),
    ],
)
def test_what_waiting_can_cure_is_not_refused(claim_mib: int, asking: dict[str, Any], cards: Sequence[Card]) -> None:
    assert refusal(ask(claim_mib, **asking), account(), cards, Policy()) is None


def test_the_card_s_own_edge_is_exact() -> None:
    """C - H is the largest train claim, to the MiB."""
    assert refusal(ask(23903), account(train_mib=99 * GIB), [card()], Policy()) is None
    assert refusal(ask(23904), account(train_mib=99 * GIB), [card()], Policy()) is not None


@pytest.mark.parametrize("asking", [{}, LIGHT, {"gpu_indexes": (1,)}])
@pytest.mark.parametrize("who", [account(), account(train_mib=3 * GIB, light_mib=2 * GIB)])
def test_the_largest_claim_is_the_last_that_is_not_refused(asking: dict[str, Any], who: Account) -> None:
    cards = [card(0), card(1, 8 * GIB, 2 * GIB)]
    largest = largest_claim_mib(ask(GIB, **asking), who, cards)
    assert largest is not None
    assert refusal(ask(largest, **asking), who, cards, Policy()) is None
    assert refusal(ask(largest + 1, **asking), who, cards, Policy()) is not None


def test_where_cards_cannot_be_read_nobody_knows_the_largest_claim() -> None:
    assert largest_claim_mib(ask(GIB), account(), []) is None
    assert largest_claim_mib(ask(GIB), account(), [card(0), card(1, 0, 0)]) is None
