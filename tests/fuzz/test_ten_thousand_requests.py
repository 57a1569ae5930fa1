"""10,000 generated requests over the real socket of one daemon: none is answered with 5xx, the daemon lives and
answers, its database is whole, and every job that it accepted is there.

A request that found a bug is printed by Hypothesis; `pytest -m fuzz` with it fixed tries it again first.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from gpuqueue.api.problems import HTTP_STATUS
from gpuqueue.wire.errors import ErrorCode
from tests.e2e.accounts import accounts
from tests.e2e.node import Node
from tests.fuzz.broken_http import Message, damaged_requests, noise, submission_requests, whole_requests
from tests.fuzz.harmless import PROGRAM, harmless
from tests.fuzz.target import Target, parsed

pytestmark = [pytest.mark.fuzz, pytest.mark.timeout(900)]

BY_SCHEMA, AGAINST_SCHEMA, SUBMISSIONS, WHOLE, DAMAGED, NOISE = 1700, 1700, 1500, 3000, 1800, 300
GROWTH_MIB = 64  # records of jobs are kept in a cache of a fixed number of entries
CONFIG = """
[daemon]
sample = "1s"
[quota]
train = "4G"
light = "4G"
held_back = "1G"
[idle]
mode = "report"
"""
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


def at_most(examples: int) -> Callable[[Any], Any]:
    return settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    """A daemon whose one card is held by two jobs, so that what is submitted with a claim waits or is refused."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="gq-")))
        directory.chmod(0o755)
        uid = os.geteuid()
        if uid == 0:
            uid = stack.enter_context(accounts(directory, 1))[0].uid
        node = Node(directory, cards="4G", config=CONFIG)
        stack.callback(node.close)
        node.start()
        for claim, job_class in (("3G", "train"), ("1G", "light")):
            node.until_state(node.submit("--vram", claim, "--class", job_class, "--", "sleep", "1h"), "running")
        yield Target(node, uid)


@pytest.fixture(scope="module")
def warm_mib(target: Target) -> int:
    """The daemon's memory once every kind of request has been served some hundred times."""

    @at_most(500)
    @given(whole_requests())
    def warm_up(message: Message) -> None:
        send(target, message)

    warm_up()
    return target.memory_mib()


@pytest.fixture
def schema(target: Target) -> Any:
    """The daemon's own description of what it serves, without the stream, which does not end."""
    document = target.session().get("http://gpuqueued/v1/openapi.json").json()
    return schemathesis.openapi.from_dict(document).exclude(path="/v1/events/stream")


def test_requests_that_follow_the_schema(target: Target, warm_mib: int, schema: Any) -> None:
    by_schema(target, schema.as_strategy(GenerationMode.POSITIVE), BY_SCHEMA, CHECKS)


def test_requests_that_go_against_the_schema(target: Target, warm_mib: int, schema: Any) -> None:
    checks = [*CHECKS, negative_data_rejection]
    by_schema(target, schema.as_strategy(GenerationMode.NEGATIVE), AGAINST_SCHEMA, checks)


def by_schema(target: Target, cases: Any, examples: int, checks: list[Any]) -> None:
    own, admins = target.session(), target.session(as_admin=True)

    @at_most(examples)
    @given(cases)
    def try_one(case: Any) -> None:
        make_harmless(case)
        session = admins if case.path.startswith("/v1/quotas") else own
        response = case.call(base_url="http://gpuqueued", session=session)
        case.validate_response(response, checks=checks)
        target.count(response.status_code, response.content)

    before = target.sent
    try_one()
    assert target.sent - before >= examples
    target.check()


def make_harmless(case: Any) -> None:
    """No foreign program, no long wait, and every second time a job that exists."""
    if case.method == "POST" and case.path == "/v1/jobs":
        case.body = harmless(case.body)
    if case.path.endswith("/wait"):
        case.query = {**(case.query or {}), "timeout_s": 0}
    if "wait_s" in (case.query or {}):
        case.query["wait_s"] = 0
    job_id = (case.path_parameters or {}).get("job_id")
    if isinstance(job_id, int) and job_id % 2:
        case.path_parameters["job_id"] = job_id % 50 + 1


def test_submissions_that_are_nearly_right(target: Target, warm_mib: int) -> None:
    before = len(target.accepted)
    each(target, submission_requests(), SUBMISSIONS)
    assert len(target.accepted) - before > SUBMISSIONS / 20  # else it is only the first line of defence that was tried


def test_whole_requests_that_no_schema_foresees(target: Target, warm_mib: int) -> None:
    each(target, whole_requests(), WHOLE)


def test_requests_that_are_cut_off_or_damaged(target: Target, warm_mib: int) -> None:
    each(target, damaged_requests(), DAMAGED)


def test_noise(target: Target, warm_mib: int) -> None:
    each(target, noise, NOISE)


def each(target: Target, messages: Any, examples: int) -> None:
    @at_most(examples)
    @given(messages)
    def try_one(message: Message) -> None:
        send(target, message)

    before = target.sent
    try_one()
    assert target.sent - before >= examples
    target.check()


def send(target: Target, message: Message) -> None:
    assert b'"command"' not in message.data or PROGRAM.encode() in message.data or not message.whole
    raw = target.exchange(message.data, message.whole)
    if not raw:
        assert not message.whole, f"no answer to {message.data[:300]!r}"
        target.count(0, b"")
        return
    answer = parsed(raw)
    assert answer.status < 500, f"{raw[:600]!r} to {message.data[:600]!r}"
    if answer.status >= 400 and not message.head_only and message.whole:
        problem = json.loads(answer.body)
        assert answer.headers["content-type"] == "application/problem+json"
        assert (problem["status"], problem["detail"] != "") == (answer.status, True)
        assert answer.status in {400, 405, *HTTP_STATUS.values()}
        assert problem["code"] in list(ErrorCode)
    target.count(answer.status, answer.body)


def test_afterwards_nothing_has_grown_or_is_lost(target: Target, warm_mib: int) -> None:
    assert target.sent >= 10_000, "the tests of this file belong together: run all of them"
    print(f"{target.sent} requests, {len(target.accepted)} jobs; answers: {dict(sorted(target.statuses.items()))}")
    assert {0, 200, 201, 400, 403, 404, 405, 409, 422} <= set(target.statuses)  # 413 is too rare to be sure of
    grown_mib = target.memory_mib() - warm_mib
    print(f"the daemon holds {warm_mib + grown_mib} MiB, {grown_mib} more than after its first requests")
    assert grown_mib < GROWTH_MIB
    session = target.session()
    for job_id in sorted(target.accepted):
        assert session.get(f"http://gpuqueued/v1/jobs/{job_id}").json()["job"]["id"] == job_id
    before = target.session().get("http://gpuqueued/v1/events?after=0&limit=1000").json()
    target.node.restart()
    target.check()
    assert requests.Response is type(target.session().get("http://gpuqueued/v1/node"))
    assert target.session().get("http://gpuqueued/v1/events?after=0&limit=1000").json() == before
