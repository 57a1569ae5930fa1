"""/v1/quotas: whose VRAM; anybody may look, admins change."""

from typing import Annotated

from fastapi import APIRouter, Depends

from gpuqueue.api.peers import caller_of, engine_of
from gpuqueue.engine import quotas
from gpuqueue.engine.callers import Caller
from gpuqueue.engine.engine import Engine
from gpuqueue.wire.jobs import QuotaChange, QuotaView

router = APIRouter(prefix="/v1/quotas", tags=["quotas"])
TheEngine = Annotated[Engine, Depends(engine_of)]
TheCaller = Annotated[Caller, Depends(caller_of)]


@router.get("")
async def list_quotas(engine: TheEngine, caller: TheCaller) -> list[QuotaView]:
    return quotas.all_quotas(engine, caller)


@router.put("/{account}")
async def set_quota(account: str, wanted: QuotaChange, engine: TheEngine, caller: TheCaller) -> QuotaView:
    quotas.change(engine, caller, account, wanted)
    await engine.next_tick()
    return quotas.view(engine, account)


@router.delete("/{account}")
async def unset_quota(account: str, engine: TheEngine, caller: TheCaller) -> QuotaView:
    quotas.unset(engine, caller, account)
    await engine.next_tick()
    return quotas.view(engine, account)
