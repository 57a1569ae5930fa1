"""The second and third kind of "no" on the wire: RFC 9457 problems, with the one table from code to status."""

import logging
import secrets

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from gpuqueue.wire.errors import ErrorCode, GpuqueueError

log = logging.getLogger(__name__)

HTTP_STATUS: dict[ErrorCode, int] = {
    ErrorCode.INVALID: 422,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.NOT_PERMITTED: 403,
    ErrorCode.CONFLICT: 409,
    ErrorCode.REFUSED: 409,
    ErrorCode.TOO_LARGE: 413,
    ErrorCode.UNAVAILABLE: 503,
    ErrorCode.INTERNAL: 500,
}
_BY_STATUS = {404: ErrorCode.NOT_FOUND, 405: ErrorCode.INVALID, 413: ErrorCode.TOO_LARGE}


def problem(error: GpuqueueError, status: int | None = None) -> JSONResponse:
    return JSONResponse(
        {
            "type": f"urn:gpuqueue:{error.code}",
            "title": error.code.replace("_", " "),
            "status": status or HTTP_STATUS[error.code],
            "detail": error.message,
            "code": str(error.code),
            "hint": error.hint,
            "fields": error.fields,
        },
        status_code=status or HTTP_STATUS[error.code],
        media_type="application/problem+json",
    )


def install(app: FastAPI) -> None:
    @app.exception_handler(GpuqueueError)
    async def refused(_: Request, error: GpuqueueError) -> JSONResponse:
        return problem(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body") or "the request body"
        return problem(GpuqueueError(ErrorCode.INVALID, f"{where}: {first['msg']}", "see /v1/openapi.json"))

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        code = _BY_STATUS.get(error.status_code, ErrorCode.INVALID)
        response = problem(GpuqueueError(code, str(error.detail), "see /v1/openapi.json"), error.status_code)
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> JSONResponse:
        incident = secrets.token_hex(4)
        log.error(
            "incident %s in %s %s", incident, request.method, request.url.path, exc_info=error, extra={"action": "bug"}
        )
        return problem(
            GpuqueueError(
                ErrorCode.INTERNAL, f"a bug in gpuqueued: incident {incident}", "the daemon's log has the details"
            )
        )
