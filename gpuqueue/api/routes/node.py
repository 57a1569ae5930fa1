"""/v1/node and /v1/doctor: what this daemon is, and whether all is well with it."""

import os
from typing import Annotated

from fastapi import APIRouter, Depends

from gpuqueue.api.peers import caller_of, engine_of
from gpuqueue.engine.callers import Caller
from gpuqueue.engine.doctor import checks
from gpuqueue.engine.engine import Engine
from gpuqueue.engine.views import node_view
from gpuqueue.wire.jobs import CheckView, NodeView

router = APIRouter(prefix="/v1", tags=["node"])
TheEngine = Annotated[Engine, Depends(engine_of)]


@router.get("/node")
async def node(engine: TheEngine, caller: Annotated[Caller, Depends(caller_of)]) -> NodeView:
    return node_view(engine, caller, os.getpid())


@router.get("/doctor")
async def doctor(engine: TheEngine) -> list[CheckView]:
    return checks(engine)
