"""One act on several jobs, one line for each: what cancel, requeue and their like share."""

from collections.abc import Callable, Iterable
from typing import Any

from gpuqueue.wire.errors import GpuqueueError
from gq.exits import DONE, NoDaemon, exit_status
from gq.terminal import complain, plain, print_json
from gq.words import standing


def each(jobs: Iterable[int], act: Callable[[int], Any], as_json: bool) -> int:
    """Does `act` on every job, says what became of it, and goes on after a refusal. Returns the exit status:
    0 where all were done, else that of the first "no"."""
    views, status = [], DONE
    for job in jobs:
        try:
            views.append(act(job))
        except NoDaemon:
            raise
        except GpuqueueError as error:
            complain(error.message, error.hint)
            status = status or exit_status(error)
            continue
        if not as_json:
            print(plain(standing(views[-1])))
    if as_json:
        print_json(views)
    return status
