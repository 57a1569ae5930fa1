"""/v1/events: what happened, who did it, why; as a list and as a stream of server-sent events."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import StreamingResponse

from gpuqueue.api.peers import engine_of
from gpuqueue.engine.engine import Engine
from gpuqueue.wire.jobs import EventView, to_json

router = APIRouter(prefix="/v1/events", tags=["events"])
TheEngine = Annotated[Engine, Depends(engine_of)]
After = Annotated[int, Query(ge=-1, le=2**62, description="events with a greater id; -1: the newest")]
HEARTBEAT_S = 15.0
BATCH = 500


@router.get("")
async def list_events(
    engine: TheEngine,
    after: After = -1,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    job: Annotated[int | None, Query(ge=1, lt=2**62)] = None,
) -> list[EventView]:
    """Oldest first."""
    return engine.store.events(after, limit, job)


@router.get("/stream", response_class=StreamingResponse, responses={200: {"content": {"text/event-stream": {}}}})
async def stream(request: Request, engine: TheEngine, after: After = -1) -> StreamingResponse:
    """Every event after `after`, then new ones as they happen. `Last-Event-ID` of a reconnecting client wins."""
    resumed = request.headers.get("last-event-id", "")
    start = int(resumed) if resumed.isascii() and resumed.isdigit() and len(resumed) < 19 else after
    return StreamingResponse(_events(engine, start), media_type="text/event-stream")


async def _events(engine: Engine, after: int) -> AsyncIterator[str]:
    seen, caught_up = after, False
    if after < 0:
        newest = engine.store.events(-1, 1)
        seen = newest[-1].id if newest else 0
    while True:
        for event in (more := engine.store.events(seen, BATCH)):
            yield _frame(event)
            seen = event.id
        if more:
            await asyncio.sleep(0)  # a long past must not keep everybody else waiting
        elif not caught_up:
            caught_up = True
            yield ": ready\n\n"
        elif not await engine.more_events(HEARTBEAT_S):
            yield ": still here\n\n"


def _frame(event: EventView) -> str:
    return f"id: {event.id}\nevent: {event.kind}\ndata: {json.dumps(to_json(event))}\n\n"
