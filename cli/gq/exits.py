"""What `gq` exits with: the one table from error code to exit status, and the few statuses that are its own."""

from gpuqueue.wire.errors import ErrorCode, GpuqueueError

DONE = 0
FAILED = 1
USAGE = 2
NO_DAEMON = 3
TROUBLE = 125  # in `gq wait` and attached runs: gq's own, never the job's
INTERRUPTED = 130

BY_CODE: dict[ErrorCode, int] = {
    ErrorCode.INVALID: USAGE,
    ErrorCode.TOO_LARGE: USAGE,
    ErrorCode.NOT_FOUND: FAILED,
    ErrorCode.NOT_PERMITTED: FAILED,
    ErrorCode.CONFLICT: FAILED,
    ErrorCode.REFUSED: FAILED,
    ErrorCode.UNAVAILABLE: FAILED,
    ErrorCode.INTERNAL: FAILED,
}


class NoDaemon(GpuqueueError):
    """Nothing answers at the socket."""


def usage(message: str, hint: str = "") -> GpuqueueError:
    """The caller's mistake, found before anything was asked of the daemon."""
    return GpuqueueError(ErrorCode.INVALID, message, hint)


def exit_status(error: GpuqueueError) -> int:
    """The exit status that this error means."""
    return NO_DAEMON if isinstance(error, NoDaemon) else BY_CODE[error.code]
