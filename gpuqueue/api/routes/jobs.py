"""/v1/jobs: submit, look, and what one may do to one's own."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from gpuqueue.api.peers import caller_of, engine_of
from gpuqueue.engine import logs, verbs
from gpuqueue.engine.callers import Caller
from gpuqueue.engine.engine import Engine
from gpuqueue.engine.listing import listing
from gpuqueue.engine.submit import submit
from gpuqueue.engine.views import job_detail, job_view
from gpuqueue.wire.jobs import JobDetail, JobView, KeepRequest, SubmitRequest, Submitted

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
TheEngine = Annotated[Engine, Depends(engine_of)]
TheCaller = Annotated[Caller, Depends(caller_of)]
MAX_WAIT_S = 60.0


@router.post("", status_code=201, responses={200: {"model": Submitted, "description": "The key was known"}})
async def submit_job(request: SubmitRequest, engine: TheEngine, caller: TheCaller, response: Response) -> Submitted:
    """Accepted means on disk. A known idempotency key answers 200 with the job that it made."""
    job, new, notes = submit(engine, caller, request)
    if not new:
        response.status_code = 200
    await engine.next_tick()
    return Submitted(job=job_view(engine, verbs.find(engine, job.id), caller), notes=notes)


@router.get("")
async def list_jobs(
    engine: TheEngine,
    caller: TheCaller,
    all: Annotated[bool, Query(description="recently ended jobs, too")] = False,
    user: str | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> list[JobView]:
    """Open jobs: what runs, then what waits in the order that it is considered; with `all`, ended ones follow."""
    return [job_view(engine, job, caller) for job in listing(engine, ended=limit if all else 0, user=user)]


@router.post("/cancel-all")
async def cancel_all(engine: TheEngine, caller: TheCaller) -> list[JobView]:
    jobs = verbs.cancel_all(engine, caller)
    await engine.next_tick()
    return [job_view(engine, verbs.find(engine, job.id), caller) for job in jobs]


@router.get("/{job_id}")
async def show_job(job_id: int, engine: TheEngine, caller: TheCaller) -> JobDetail:
    return job_detail(engine, verbs.find(engine, job_id), caller)


@router.get("/{job_id}/why")
async def why(job_id: int, engine: TheEngine, caller: TheCaller) -> JobView:
    return job_view(engine, verbs.find(engine, job_id), caller)


@router.post("/{job_id}/cancel")
async def cancel(job_id: int, engine: TheEngine, caller: TheCaller) -> JobView:
    verbs.cancel(engine, caller, job_id)
    await engine.next_tick()
    return job_view(engine, verbs.find(engine, job_id), caller)


@router.post("/{job_id}/requeue")
async def requeue(job_id: int, engine: TheEngine, caller: TheCaller) -> JobView:
    verbs.requeue(engine, caller, job_id)
    await engine.next_tick()
    return job_view(engine, verbs.find(engine, job_id), caller)


@router.post("/{job_id}/keep")
async def keep(job_id: int, wanted: KeepRequest, engine: TheEngine, caller: TheCaller) -> JobView:
    verbs.keep(engine, caller, job_id, wanted.extend_s)
    await engine.next_tick()
    return job_view(engine, verbs.find(engine, job_id), caller)


@router.get("/{job_id}/wait")
async def wait(
    request: Request,
    job_id: int,
    engine: TheEngine,
    caller: TheCaller,
    timeout_s: Annotated[float, Query(ge=0, le=MAX_WAIT_S)] = 30.0,
) -> JobView:
    """Answers as soon as the job has ended, or after `timeout_s` with its state then."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while not (job := verbs.find(engine, job_id)).state.ended and (left := deadline - loop.time()) > 0:
        if await request.is_disconnected():  # nobody is there to be answered
            break
        await engine.changed(left)
    return job_view(engine, job, caller)


@router.get("/{job_id}/log", response_class=Response, responses={200: {"content": {"application/octet-stream": {}}}})
async def log(
    request: Request,
    job_id: int,
    engine: TheEngine,
    caller: TheCaller,
    attempt: Annotated[int | None, Query(ge=1, lt=2**31)] = None,
    offset: Annotated[int, Query(ge=-(2**62), le=2**62)] = 0,
    limit: Annotated[int, Query(ge=1, le=4 * 1024 * 1024)] = 1024 * 1024,
    wait_s: Annotated[float, Query(ge=0, le=MAX_WAIT_S)] = 0.0,
) -> Response:
    """Bytes of the job's log from `offset` on (negative: from the end). With `wait_s`, waits for new ones."""
    gone = request.is_disconnected
    chunk = await logs.read(engine, caller, job_id, attempt, offset, limit, wait_s=wait_s, gone=gone)
    return Response(
        chunk.data,
        media_type="application/octet-stream",
        headers={
            "GQ-Offset": str(chunk.offset),
            "GQ-Next-Offset": str(chunk.next_offset),
            "GQ-Size": str(chunk.size),
            "GQ-Attempt": str(chunk.attempt),
            "GQ-Ended": "1" if chunk.ended else "0",
        },
    )
