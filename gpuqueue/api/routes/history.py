"""/v1/history: what runs took; /v1/calibration: how near estimates came to it."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from gpuqueue.api.peers import caller_of, engine_of
from gpuqueue.engine import claims, history
from gpuqueue.engine.callers import Caller
from gpuqueue.engine.engine import Engine
from gpuqueue.engine.submit import account_of
from gpuqueue.wire.jobs import CalibrationView, RunView

router = APIRouter(prefix="/v1", tags=["history"])
TheEngine = Annotated[Engine, Depends(engine_of)]
TheCaller = Annotated[Caller, Depends(caller_of)]


@router.get("/history")
async def list_runs(
    engine: TheEngine,
    caller: TheCaller,
    all: Annotated[bool, Query(description="everybody's, not only one's own")] = False,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[int | None, Query(ge=1, lt=2**63, description="ids less than this: the next page")] = None,
) -> list[RunView]:
    """Attempts that ended, newest first."""
    return history.listing(engine, caller, everyone=all, limit=limit, before=before)


@router.get("/calibration")
async def calibration(
    engine: TheEngine,
    caller: TheCaller,
    model: Annotated[str, Query(min_length=1, max_length=200)],
    account: str | None = None,
) -> CalibrationView:
    """Peaks over estimates of the account's runs with this model's family."""
    return claims.calibration_view(engine, account_of(engine, caller, account), model)
