"""`gq why`: one line on why a job waits, what it is doing, or how it ended (rules S5, Z1)."""

import click

from gq import client
from gq.arguments import job_argument, json_option
from gq.terminal import plain, print_json
from gq.words import standing


@click.command("why")
@job_argument
@json_option
def command(job: int, as_json: bool) -> None:
    """Why job JOB waits, or how it ended, in one line."""
    view = client.get(f"/v1/jobs/{job}/why")
    if as_json:
        print_json(view)
    else:
        print(plain(standing(view)))
