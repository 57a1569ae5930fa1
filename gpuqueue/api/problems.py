"""The second and third kind of "no" on the wire: RFC 9457 problems, with the one table from code to status."""

import json
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException

from gpuqueue.wire.errors import ErrorCode, GpuqueueError
from gpuqueue.wire.jobs import to_json

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
UNREADABLE = 400  # a body that is not even text
MEDIA_TYPE = "application/problem+json"
MAX_DETAIL = 500  # what is wrong may quote what was sent
SEE_SCHEMA = "see /v1/openapi.json"
_BY_STATUS = {404: ErrorCode.NOT_FOUND, 413: ErrorCode.TOO_LARGE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    type: str
    title: str
    status: int
    detail: str
    code: ErrorCode
    hint: str
    fields: dict[str, str | int]


class AsciiJson(JSONResponse):
    """File names need not be Unicode. What Python keeps of such a one (PEP 383) cannot be written as UTF-8, and
    travels as JSON escapes."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")


def problem(error: GpuqueueError, status: int | None = None) -> JSONResponse:
    status = status or HTTP_STATUS[error.code]
    said = Problem(
        type=f"urn:gpuqueue:{error.code}",
        title=error.code.replace("_", " "),
        status=status,
        detail=_clipped(error.message),
        code=error.code,
        hint=error.hint,
        fields=error.fields,
    )
    return AsciiJson(to_json(said), status_code=status, media_type=MEDIA_TYPE)


def documented() -> dict[int | str, dict[str, Any]]:
    """Every status that is a "no", for the OpenAPI document of every route."""
    meaning: dict[int, list[str]] = {UNREADABLE: ["unreadable body"]}
    for code, status in HTTP_STATUS.items():
        meaning.setdefault(status, []).append(code.replace("_", " "))
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        status: {"description": " or ".join(words).capitalize(), "content": content}
        for status, words in sorted(meaning.items())
    }


def install(app: FastAPI) -> None:
    _describe(app)

    @app.exception_handler(GpuqueueError)
    async def refused(_: Request, error: GpuqueueError) -> JSONResponse:
        return problem(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        errors = error.errors()
        # A mistyped name is both unknown and missing: what was typed tells more.
        first = next((one for one in errors if one["type"] == "unexpected_keyword_argument"), errors[0])
        return problem(GpuqueueError(ErrorCode.INVALID, _what_is_invalid(first), SEE_SCHEMA))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        code = _BY_STATUS.get(error.status_code, ErrorCode.INVALID)
        detail = str(error.detail)
        if detail == HTTPStatus(error.status_code).phrase:  # of a path or a method that no route has
            detail = f"{detail}: {request.method} {request.scope['path']}"
        response = problem(GpuqueueError(code, detail, SEE_SCHEMA), error.status_code)
        response.headers.update(error.headers or {})
        return response

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> JSONResponse:
        incident = secrets.token_hex(4)
        where = f"{request.method} {request.scope['path']!r}"
        log.error("incident %s in %s", incident, where, exc_info=error, extra={"action": "bug"})
        return problem(
            GpuqueueError(
                ErrorCode.INTERNAL, f"a bug in gpuqueued: incident {incident}", "the daemon's log has the details"
            )
        )


def _describe(app: FastAPI) -> None:
    """Adds Problem to the schemas of the OpenAPI document, which knows only what a route returns."""
    generated = app.openapi

    def openapi() -> dict[str, Any]:
        document = generated()
        document["components"]["schemas"]["Problem"] = TypeAdapter(Problem).json_schema()
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _what_is_invalid(error: Mapping[str, Any]) -> str:
    if error["type"] == "json_invalid":
        return f"the request body is not JSON: {error['ctx']['error']} at character {error['loc'][-1]}"
    where = ".".join(str(part) for part in error["loc"] if part != "body")
    return f"{_clipped(where)}: {error['msg']}" if where else f"the request body as application/json: {error['msg']}"


def _clipped(text: str) -> str:
    return text if len(text) <= MAX_DETAIL else f"{text[: MAX_DETAIL - 1]}…"
