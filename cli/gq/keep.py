"""`gq keep`: more time for a job, against its limit and its idle deadline (rule Z4)."""

import click

from gpuqueue.wire.units import format_seconds
from gq import client
from gq.arguments import Duration, job_argument, json_option
from gq.terminal import print_json


@click.command("keep")
@job_argument
@click.argument("time", type=Duration())
@json_option
def command(job: int, time: int, as_json: bool) -> None:
    """Give job JOB TIME more, for example 2h, up to the admin's maximum."""
    view = client.post(f"/v1/jobs/{job}/keep", {"extend_s": time})
    if as_json:
        print_json(view)
    else:
        limit = f": it may run {format_seconds(view.limit_s)} in all" if view.limit_s else ""
        print(f"job {job} has {format_seconds(time)} more{limit}")
