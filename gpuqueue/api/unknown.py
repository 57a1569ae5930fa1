"""What a request says and nobody would read is refused: a mistyped option must not look as if it had worked."""

from fastapi import Request

from gpuqueue.wire.errors import ErrorCode, GpuqueueError


async def nothing_unknown(request: Request) -> None:
    """FastAPI dependency of every route. Unknown fields of a body are refused where the body is read."""
    route = request.scope["route"]
    known = [parameter.alias for parameter in route.dependant.query_params]
    seen = set()
    for name, _ in request.query_params.multi_items():
        if name not in known:
            way_out = f"there are {', '.join(known)}" if known else "leave it out"
            raise GpuqueueError(ErrorCode.INVALID, f"there is no query parameter {name!r}", way_out)
        if name in seen:
            raise GpuqueueError(ErrorCode.INVALID, f"the query parameter {name!r} is there twice", "give it once")
        seen.add(name)
    if route.body_field is None and _has_body(request):
        message = f"{request.method} {route.path} takes no body"
        raise GpuqueueError(ErrorCode.INVALID, message, "leave it out")


def _has_body(request: Request) -> bool:
    return "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0"
