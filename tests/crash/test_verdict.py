"""The verdict of the crash trial finds what it is there to find."""

from typing import Any

import pytest

from tests.crash.errands import Errand
from tests.crash.traffic import Accepted
from tests.crash.verdict import Told, faults, tally


def accepted(verb: str | None = None, *, restarts: bool = False, kind: str = "plain", **changes: Any) -> Accepted:
    errand = Errand(unique="a0001", kind=kind, restarts=restarts, verb=verb, verb_after_s=0, request={})
    return Accepted(errand, 7, asks=1 if verb else 0, **changes)


def attempt(number: int, code: int | None, outcome: str = "as it may be", ended_at: int | None = 9) -> dict[str, Any]:
    return {"number": number, "exit_code": code, "outcome": outcome, "ended_at": ended_at}


def shown(state: str, *attempts: dict[str, Any], **changes: Any) -> dict[str, Any]:
    code = attempts[-1]["exit_code"] if attempts else None
    job = {"name": "a0001", "state": state, "exit_code": code, "started_at": 5 if attempts else None}
    return {"job": job | changes, "attempts": list(attempts)}


def ran(code: int | None, **changes: Any) -> Told:
    return Told(**{"starts": 1, "started_ns": 1, "code": code} | changes)


LOST = "its exit status is lost: nobody lived to note it"
RETRIED = shown("succeeded", attempt(1, 3), attempt(2, 0))
TWO_RUNS = {1: ran(3), 2: ran(0, started_ns=2)}

RIGHT = {
    "success": (accepted(), shown("succeeded", attempt(1, 0)), {1: ran(0)}, ()),
    "failure": (accepted(), shown("failed", attempt(1, 139)), {1: ran(139)}, ()),
    "retry": (accepted(restarts=True), RETRIED, TWO_RUNS, ()),
    "crash loop": (
        accepted(restarts=True),
        shown("stopped", *(attempt(n, 3) for n in (1, 2, 3, 4))),
        {n: ran(3, started_ns=n) for n in (1, 2, 3, 4)},
        (),
    ),
    "lost with its monitor": (accepted(), shown("failed", attempt(1, None, LOST)), {1: ran(0)}, (1,)),
    "never released, the monitor killed": (accepted(), shown("failed", attempt(1, None, LOST)), {}, (1,)),
    "cancelled in time": (accepted("cancel", cancelled_in=1), shown("cancelled", attempt(1, 143)), {}, ()),
    "killed after its grace": (accepted("cancel"), shown("cancelled", attempt(1, 137)), {1: ran(None)}, ()),
    "killed after its last word": (accepted("cancel"), shown("cancelled", attempt(1, 137)), {1: ran(143)}, ()),
    "cancelled while it waited": (accepted("cancel", cancelled_in=0), shown("cancelled"), {}, ()),
    "requeued": (
        accepted("requeue"),
        shown("failed", attempt(1, 143), attempt(2, 3)),
        {1: ran(143), 2: ran(3, started_ns=2)},
        (),
    ),
    "faster than its cancel": (accepted("cancel"), shown("succeeded", attempt(1, 0)), {1: ran(0)}, ()),
}

WRONG = {
    "false status": (accepted(), shown("failed", attempt(1, 4)), {1: ran(3)}, (), "ended with 3, and is said"),
    "killed by nobody": (accepted(), shown("failed", attempt(1, 137)), {1: ran(3)}, (), "ended with 3, and is said"),
    "invented success": (accepted(), shown("succeeded", attempt(1, 0)), {1: ran(None)}, (1,), "did not end by itself"),
    "never ran": (accepted(), shown("succeeded", attempt(1, 0)), {}, (), "never ran by itself"),
    "lost for no reason": (
        accepted(),
        shown("failed", attempt(1, None, LOST)),
        {1: ran(0)},
        (),
        "though nobody killed",
    ),
    "lost in silence": (accepted(), shown("failed", attempt(1, None)), {1: ran(0)}, (1,), "does not say so"),
    "ran twice": (accepted(), shown("succeeded", attempt(1, 0)), {1: ran(0, starts=2)}, (), "ran 2 times"),
    "overlap": (accepted(restarts=True), RETRIED, TWO_RUNS | {2: ran(0, overlaps=1)}, (), "of an earlier one was left"),
    "out of order": (accepted(restarts=True), RETRIED, {1: ran(3, started_ns=2), 2: ran(0)}, (), "before the one"),
    "unknown attempt": (accepted(), shown("failed", attempt(1, 3)), {1: ran(3), 2: ran(0)}, (), "knows nothing"),
    "gap": (accepted(restarts=True), shown("succeeded", attempt(2, 0)), {2: ran(0)}, (), "numbered [2]"),
    "may not run again": (accepted(), RETRIED, TWO_RUNS, (), "must not run again"),
    "again after success": (
        accepted(restarts=True),
        shown("succeeded", attempt(1, 0), attempt(2, 0)),
        {1: ran(0), 2: ran(0, started_ns=2)},
        (),
        "after success",
    ),
    "again after cancel": (
        accepted("cancel", restarts=True, cancelled_in=1),
        RETRIED,
        TWO_RUNS,
        (),
        "made after its cancel",
    ),
    "requeued too often": (
        accepted("requeue"),
        shown("failed", attempt(1, 143), attempt(2, 143), attempt(3, 3)),
        {1: ran(143), 2: ran(143, started_ns=2), 3: ran(3, started_ns=3)},
        (),
        "was requeued 1 times",
    ),
    "from the beginning": (
        accepted(restarts=True, kind="resume"),
        shown("succeeded", attempt(1, 1), attempt(2, 0)),
        {1: ran(1), 2: ran(0, started_ns=2)},
        (),
        "does not resume",
    ),
    "not ended": (accepted(), shown("running", attempt(1, None, ended_at=None)), {1: ran(0)}, (), "has not ended"),
    "open for ever": (accepted(), shown("queued"), {}, (), "without ever having been tried"),
    "given up early": (accepted(restarts=True), shown("stopped", attempt(1, 3)), {1: ran(3)}, (), "given up after 1"),
    "wrong state": (accepted(), shown("succeeded", attempt(1, 3)), {1: ran(3)}, (), "should be failed"),
    "cancelled by nobody": (accepted(), shown("cancelled", attempt(1, 0)), {1: ran(0)}, (), "nobody asked"),
    "another's job": (accepted(), shown("succeeded", attempt(1, 0), name="b0003"), {1: ran(0)}, (), "is now b0003"),
    "two codes": (accepted(), shown("failed", attempt(1, 3), exit_code=4), {1: ran(3)}, (), "has exit code 4"),
    "never started": (accepted(), shown("failed", attempt(1, 3), started_at=None), {1: ran(3)}, (), "never to have"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_may_be_is_no_fault(name: str) -> None:
    job, detail, truth, unwatched = RIGHT[name]
    assert list(faults(job, detail, truth, frozenset(unwatched))) == []


@pytest.mark.parametrize("name", WRONG)
def test_what_must_not_be_is_found(name: str) -> None:
    job, detail, truth, unwatched, sentence = WRONG[name]
    found = list(faults(job, detail, truth, frozenset(unwatched)))
    assert any(sentence in fault for fault in found), found


def test_the_tally_counts_attempts_by_what_is_known_of_them() -> None:
    detail = shown("stopped", attempt(1, 3), attempt(2, None), attempt(3, 4), attempt(4, 143))
    counts = tally(detail, {1: ran(3), 2: ran(0), 3: ran(5, starts=2)})
    assert counts == {
        "jobs": 1,
        "stopped": 1,
        "attempts": 4,
        "true": 1,
        "said to be lost": 1,
        "false": 1,
        "never ran": 1,
        "run twice": 1,
    }
