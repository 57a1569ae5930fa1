"""The second kind of "no": the caller's or the world's fault, with a code that both ends know.

The API turns a code into an HTTP status (one table there) and an RFC 9457 problem; `gq` turns it into an
exit status (one table there). The scheduler's "no" is a Reason, never an exception; anything else is a bug.
"""

from enum import StrEnum


class ErrorCode(StrEnum):
    INVALID = "invalid"  # the request itself is wrong: a usage error
    NOT_FOUND = "not_found"
    NOT_PERMITTED = "not_permitted"
    CONFLICT = "conflict"  # the job is not in a state that allows it
    REFUSED = "refused"  # rule Q5: could never run
    TOO_LARGE = "too_large"
    UNAVAILABLE = "unavailable"  # the daemon or the world cannot do it now
    INTERNAL = "internal"


class GpuqueueError(Exception):
    """`message` says what is wrong and names the input; `hint` the way out; `fields` the numbers."""

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        hint: str = "",
        fields: dict[str, str | int] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.fields = dict(fields or {})
