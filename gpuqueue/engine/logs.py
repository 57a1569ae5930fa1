"""Use case: read a job's log. Only its owner and admins may (A2)."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gpuqueue.core.model import AttemptPhase
from gpuqueue.engine.callers import Caller
from gpuqueue.engine.engine import Engine
from gpuqueue.engine.verbs import find_own
from gpuqueue.wire.errors import ErrorCode, GpuqueueError

POLL_S = 0.25  # the job writes its log itself, so nobody can wake us


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    data: bytes
    offset: int
    next_offset: int
    size: int
    attempt: int
    ended: bool  # nothing will be added any more


async def read(
    engine: Engine,
    caller: Caller,
    job_id: int,
    attempt: int | None,
    offset: int,
    limit: int,
    *,
    wait_s: float,
    gone: Callable[[], Awaitable[bool]],
) -> Chunk:
    """Up to `limit` bytes from `offset` on. With nothing there yet, waits up to `wait_s` for the first of them, or
    until the reader is `gone`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    while True:
        chunk = await _read_once(engine, caller, job_id, attempt, offset, limit)
        if chunk.data or chunk.ended or loop.time() >= deadline or await gone():
            return chunk
        await asyncio.sleep(min(POLL_S, max(0.0, deadline - loop.time())))


async def _read_once(
    engine: Engine, caller: Caller, job_id: int, attempt: int | None, offset: int, limit: int
) -> Chunk:
    job = find_own(engine, caller, job_id, "read the log of")
    number = attempt or job.attempt
    if attempt is not None and not 1 <= attempt <= job.attempt:
        raise GpuqueueError(
            ErrorCode.NOT_FOUND, f"job {job_id} has no attempt {attempt}", f"it has had {job.attempt} so far"
        )
    # Looked up before the bytes: what is written in between is then still read, never declared finished.
    attempts = [a for a in engine.store.attempts(job_id) if a.number == number]
    over = all(a.phase in (AttemptPhase.RELEASING, AttemptPhase.ENDED) for a in attempts)
    ended = over and (job.state.ended or number < job.attempt)
    if number == 0:
        return Chunk(data=b"", offset=0, next_offset=0, size=0, attempt=0, ended=job.state.ended)
    data, start, size = await asyncio.to_thread(engine.backend.read_log, job_id, number, offset, limit)
    next_offset = start + len(data)
    return Chunk(
        data=data,
        offset=start,
        next_offset=next_offset,
        size=size,
        attempt=number,
        ended=ended and next_offset >= size,
    )
