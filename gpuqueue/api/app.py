"""The FastAPI application: routes, problems, limits. It sees the engine and no adapter."""

from fastapi import Depends, FastAPI

from gpuqueue.api import problems
from gpuqueue.api.limits import BodyLimit
from gpuqueue.api.routes import cards, events, history, jobs, node, quotas
from gpuqueue.api.unknown import nothing_unknown
from gpuqueue.engine.engine import Engine
from gpuqueue.version import __version__


def build_app(engine: Engine) -> FastAPI:
    app = FastAPI(
        title="gpuqueue",
        version=__version__,
        openapi_url="/v1/openapi.json",
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        default_response_class=problems.AsciiJson,
        dependencies=[Depends(nothing_unknown)],
        responses=problems.documented(),
    )
    app.state.engine = engine
    app.add_middleware(BodyLimit)
    problems.install(app)
    for noun in (jobs, history, cards, quotas, events, node):
        app.include_router(noun.router)
    return app
