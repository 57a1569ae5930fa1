"""Q1: what an admin is told of a quota that was set."""

import time

from gpuqueue.engine import quotas
from gpuqueue.engine.callers import Caller
from gpuqueue.engine.engine import Engine
from gpuqueue.engine.tick import cycle
from gpuqueue.wire.jobs import QuotaChange

ADMIN = Caller(uid=0, gid=0, user="root", groups=(), admin=True)


def test_a_quota_that_no_job_can_use_up_here_is_taken_and_told_so(engine: Engine) -> None:
    """It counts as soon as the node gets another card, or holds back less."""
    cycle(engine, engine.cards.read(), time.monotonic())
    (card,) = engine.snapshot.cards
    part_mib = card.capacity_mib - card.held_back_mib
    fits = quotas.change(engine, ADMIN, "ann", QuotaChange(train_mib=part_mib, light_mib=card.held_back_mib))
    assert (fits.train_mib, fits.light_mib, fits.note) == (part_mib, card.held_back_mib, "")
    more = quotas.change(engine, ADMIN, "ann", QuotaChange(train_mib=part_mib + 1, light_mib=None))
    assert more.train_mib == part_mib + 1
    assert more.note == "train jobs hold at most 23.3 GiB on this node, whatever the quota"
    assert quotas.view(engine, "ann").note == ""


def test_where_no_card_is_known_nothing_is_said_of_what_it_could_hold(engine: Engine) -> None:
    assert quotas.change(engine, ADMIN, "ann", QuotaChange(train_mib=999 * 1024, light_mib=None)).note == ""
