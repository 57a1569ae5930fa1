"""Dataclasses to JSON and back."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuqueue.core.model import Attempt, Job
from gpuqueue.core.reasons import Reason, ReasonCode
from gpuqueue.store.records import decode, encode
from gpuqueue.wire.jobs import SubmitRequest
from tests.store.full import FULL_ATTEMPT, FULL_JOB, FULL_REQUEST, FULL_RUN, left_at_default

FULL = pytest.mark.parametrize(
    "record",
    [FULL_JOB, FULL_JOB.ask, FULL_JOB.stop, FULL_JOB.restarts, FULL_ATTEMPT, FULL_REQUEST, FULL_RUN, FULL_RUN.work],
    ids=lambda record: type(record).__name__,
)


@FULL
def test_the_samples_set_every_field(record: object) -> None:
    assert left_at_default(record) == set()


@FULL
def test_what_was_encoded_comes_back_the_same(record: object) -> None:
    assert decode(type(record), encode(record)) == record


def test_types_come_back_too() -> None:
    job = decode(Job, encode(FULL_JOB))
    assert type(job.state) is type(FULL_JOB.state)
    assert type(job.ask.restart) is type(FULL_JOB.ask.restart)
    assert type(job.ask.gpu_indexes) is tuple
    assert job.stop is not None
    assert type(job.stop.reason.code) is ReasonCode


def test_text_is_plain_ascii_that_sqlite_can_keep() -> None:
    assert encode(FULL_REQUEST).isascii()


def test_a_field_that_is_missing_takes_its_default() -> None:
    older = encode(FULL_ATTEMPT, without=("flagged", "over_samples"))
    assert decode(Attempt, older) == replace(FULL_ATTEMPT, flagged=None, over_samples=0)


def test_a_field_of_another_release_is_passed_over() -> None:
    newer = encode(FULL_ATTEMPT).removesuffix("}") + ',"colour":"red"}'
    assert decode(Attempt, newer) == FULL_ATTEMPT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "7",
        "{}",
        encode(FULL_ATTEMPT).replace("releasing", "dancing"),
        encode(FULL_ATTEMPT, without=("cards",)),
    ],
)
def test_what_is_no_such_record_is_an_error(text: str) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        decode(Attempt, text)


def test_a_value_that_has_no_json_is_refused_when_written() -> None:
    with pytest.raises(TypeError, match="complex"):
        encode(Reason(ReasonCode.IDLE, {"io": 1j}))  # type: ignore[dict-item]


def test_a_union_that_json_cannot_tell_apart_is_refused() -> None:
    @dataclass
    class Ambiguous:
        value: Job | Attempt

    Ambiguous.__annotations__["value"] = Job | Attempt
    with pytest.raises(TypeError, match="apart"):
        decode(Ambiguous, "{}")


@given(
    env=st.dictionaries(st.text(st.characters()), st.text(st.characters())),
    command=st.lists(st.text(st.characters())),
)
def test_any_environment_survives(env: dict[str, str], command: list[str]) -> None:
    request = replace(FULL_REQUEST, env=env, command=command)
    assert decode(SubmitRequest, encode(request)) == request
