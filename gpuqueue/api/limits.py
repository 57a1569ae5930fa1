"""No request body above the limit is read, whatever its length header says."""

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpuqueue.api.problems import problem
from gpuqueue.wire.errors import ErrorCode, GpuqueueError

MAX_BODY_BYTES = 8 * 1024 * 1024  # a script of 4 MiB, JSON-escaped, and a large environment
TOO_LARGE = f"the request is over {MAX_BODY_BYTES // 1024 // 1024} MiB"


class BodyLimit:
    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if int(declared) > MAX_BODY_BYTES:  # the HTTP parser lets nothing but digits through
            hint = "submit a smaller script that calls the large one"
            await problem(GpuqueueError(ErrorCode.TOO_LARGE, TOO_LARGE, hint))(scope, receive, send)
            return
        received = 0

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MAX_BODY_BYTES:
                raise HTTPException(413, TOO_LARGE)  # the one exception that FastAPI passes on while it reads a body
            return message

        await self.app(scope, limited, send)
