"""The `gq` command: how it starts, and how each "no" becomes an exit status."""

import os
import signal
import sys

from gpuqueue.wire.errors import GpuqueueError
from gq.exits import DONE, FAILED, INTERRUPTED, USAGE, exit_status
from gq.terminal import complain


def run(arguments: list[str]) -> int:
    """Runs one command line and returns its exit status; what went wrong is on the standard error."""
    try:
        status = _run(arguments)
        sys.stdout.flush()
        return status
    except GpuqueueError as error:
        status = exit_status(error)
        complain(
            error.message, error.hint or (f"see `gq {arguments[0]} --help`" if status == USAGE and arguments else "")
        )
        return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:  # of the output: a full disk, a terminal that went away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left unwritten must not fail again
        print(f"gq: cannot write: {error.strerror or error}", file=sys.stderr)
        return FAILED


def _run(arguments: list[str]) -> int:
    completing = "_GQ_COMPLETE" in os.environ  # the shell asks click, with no arguments
    if arguments in ([], ["status"]) and not completing:  # typed all day: goes without click, half the start-up time
        from gq.overview import print_overview

        print_overview()
        return DONE
    from gq.verbs import dispatch

    return dispatch(arguments)


def main() -> None:
    """The entry point. A reader that goes away (`| head`) ends gq as it ends any Unix program."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
