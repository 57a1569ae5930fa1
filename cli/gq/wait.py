"""`gq wait`: until jobs have ended, then their own exit status."""

import sys
from typing import Any

import click

from gpuqueue.wire.errors import GpuqueueError
from gpuqueue.wire.states import FINAL_STATES
from gq import client
from gq.arguments import jobs_argument, json_option
from gq.exits import DONE, INTERRUPTED, TROUBLE
from gq.follow import HOLD_S, await_end, ended_line, own_status
from gq.terminal import complain, print_json


@click.command("wait")
@jobs_argument
@click.option("--quiet", "-q", is_flag=True, help="Only the exit status, no line for each job.")
@json_option
def command(jobs: tuple[int, ...], quiet: bool, as_json: bool) -> int:
    """Wait until all JOBS have ended, and exit as they did.

    The exit status is the job's own, 128 + n after signal n, 124 where gpuqueue ended it (cancelled, stopped),
    125 for trouble of gq's own. With several jobs: the first one that is not 0, in the order given.
    """
    try:
        views = []
        for job in jobs:
            client.get(f"/v1/jobs/{job}")  # all must exist before the first is waited for
        for job in jobs:
            views.append(_ended(job))
            if not quiet and not as_json:
                print(ended_line(views[-1]), flush=True)
    except GpuqueueError as error:
        complain(error.message, error.hint)
        return TROUBLE
    except KeyboardInterrupt:
        print("\nno longer waiting; the jobs go on", file=sys.stderr)
        return INTERRUPTED
    if as_json:
        print_json(views)
    return next((status for view in views if (status := own_status(view)) != 0), DONE)


def _ended(job: int) -> Any:
    while True:
        view = await_end(job, HOLD_S)
        if view.state in FINAL_STATES:
            return view
