"""/v1/cards: the GPUs, who is on them, and what is left."""

from typing import Annotated

from fastapi import APIRouter, Depends

from gpuqueue.api.peers import engine_of
from gpuqueue.engine.engine import Engine
from gpuqueue.engine.views import card_views
from gpuqueue.wire.jobs import CardView

router = APIRouter(prefix="/v1/cards", tags=["cards"])


@router.get("")
async def list_cards(engine: Annotated[Engine, Depends(engine_of)]) -> list[CardView]:
    engine.require_cards()
    return card_views(engine)
