"""`gq cancel`: end jobs for good, running or not."""

import click

from gq import client
from gq.arguments import JobId, json_option
from gq.exits import usage
from gq.terminal import plain, print_json
from gq.verdicts import each
from gq.words import standing


@click.command("cancel")
@click.argument("jobs", type=JobId(), nargs=-1)
@click.option("--all", "every", is_flag=True, help="All of your own jobs that have not ended.")
@json_option
def command(jobs: tuple[int, ...], every: bool, as_json: bool) -> int:
    """Cancel JOBS. A running job gets its stop signal and its grace first."""
    if every == bool(jobs):
        raise usage("which jobs?" if not every else "--all and job ids exclude each other", "gq cancel 12, or --all")
    if not every:
        return each(jobs, lambda job: client.post(f"/v1/jobs/{job}/cancel"), as_json)
    views = client.post("/v1/jobs/cancel-all")
    if as_json:
        print_json(views)
    elif not views:
        print("you have no open jobs")
    else:
        print("\n".join(plain(standing(view)) for view in views))
    return 0
