"""No request body above the limit is read, whatever its length header says."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpuqueue.api.problems import problem
from gpuqueue.wire.errors import ErrorCode, GpuqueueError

MAX_BODY_BYTES = 8 * 1024 * 1024  # a script of 4 MiB, JSON-escaped, and a large environment


class _TooLarge(Exception):
    pass


class BodyLimit:
    def __init__(self, app: ASGIApp, max_bytes: int = MAX_BODY_BYTES) -> None:
        self.app = app
        self.max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        received, started = 0, False

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.max_bytes:
                raise _TooLarge
            return message

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        try:
            if declared.isdigit() and int(declared) > self.max_bytes:
                raise _TooLarge
            await self.app(scope, limited, watched)
        except _TooLarge:
            if started:
                raise
            error = GpuqueueError(
                ErrorCode.TOO_LARGE,
                f"the request is over {self.max_bytes // 1024 // 1024} MiB",
                "submit a smaller script that calls the large one",
            )
            await problem(error)(scope, receive, send)
