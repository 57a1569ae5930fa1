"""What the application answers, asked without a socket: names that are not Unicode, and the second kind of "no"."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuqueue.api.app import build_app
from gpuqueue.api.problems import HTTP_STATUS, documented
from gpuqueue.config.settings import Settings
from gpuqueue.core.model import Job
from gpuqueue.daemon.serve import build_engine
from gpuqueue.engine.callers import Peer
from gpuqueue.engine.engine import Engine
from gpuqueue.gpu.simulated import SimulatedCards
from gpuqueue.store.open import open_store
from gpuqueue.wire.errors import ErrorCode
from gpuqueue.wire.jobs import SubmitRequest
from tests import builders

ME = Peer(uid=0, gid=0, pid=1, groups=(0,))
REQUEST = SubmitRequest(idempotency_key="k", vram_mib=1, command=["true"], cwd="/", env={})


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    store = open_store(tmp_path / "gpuqueue.db")
    yield build_engine(Settings(state_dir=tmp_path), store, SimulatedCards(tmp_path / "sim", (32607,)))
    store.close()


def ask(engine: Engine, method: str, target: str, body: bytes = b"") -> tuple[int, Any]:
    """The status, and the JSON that was answered."""
    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))],
        "state": {"peer": ME},
    }
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(build_app(engine)(scope, receive, send))
    return sent[0]["status"], json.loads(b"".join(message.get("body", b"") for message in sent))


def stored(engine: Engine, **changes: Any) -> Job:
    job = replace(builders.job(user="root"), uid=0, **changes)
    return engine.store.add_job(job, REQUEST)[0]


def test_a_path_that_is_not_unicode_spoils_no_listing(engine: Engine) -> None:
    stored(engine, resumed_from="/ck/caf\udce9-100")
    status, [job] = ask(engine, "GET", "/v1/jobs")
    assert (status, job["resumed_from"]) == (200, "/ck/caf\udce9-100")


@pytest.mark.parametrize(
    ("method", "target", "body", "named"),
    [
        ("GET", "/v1/jobs?al=1", b"", "'al'"),
        ("GET", "/v1/cards?all=1", b"", "'all'"),
        ("GET", "/v1/jobs?limit=1&limit=2", b"", "'limit'"),
        ("POST", "/v1/jobs/1/cancel", b'{"why": "x"}', "takes no body"),
        ("GET", "/v1/node", b"{}", "takes no body"),
        ("POST", "/v1/jobs/1/keep", b'{"extend_s": 60, "hours": 1}', "hours"),
        ("POST", "/v1/jobs/1/keep", b'{"extend_s": "60"}', "extend_s"),
        ("POST", "/v1/jobs/1/keep", b'{"extend_s": 60.0}', "extend_s"),
        ("POST", "/v1/jobs/1/keep", b'{"extend_s": true}', "extend_s"),
        ("POST", "/v1/jobs/1/keep", b'{"extend_s": 99999999999}', "99999999999"),
        ("POST", "/v1/jobs/1/keep", b'{"extend_s": ', "not JSON"),
        ("PUT", "/v1/quotas/ann", b'{"train_mb": 1}', "train_mb"),
        ("POST", "/v1/jobs", b'{"vram": "22G"}', "vram"),
    ],
)
def test_what_nobody_would_read_is_refused_by_name(
    engine: Engine, method: str, target: str, body: bytes, named: str
) -> None:
    stored(engine)
    status, problem = ask(engine, method, target, body)
    assert (status, problem["code"]) == (422, "invalid")
    assert named in problem["detail"]
    assert engine.store.open_jobs()[0].extra_s == 0


def test_every_refusal_is_declared_for_every_route(engine: Engine) -> None:
    _, document = ask(engine, "GET", "/v1/openapi.json")
    assert set(HTTP_STATUS) == set(ErrorCode)
    declared = {str(status) for status in documented()}
    assert {str(status) for status in HTTP_STATUS.values()} <= declared
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            assert declared <= set(operation["responses"]), f"{verb} {path}"
    assert "Problem" in document["components"]["schemas"]
