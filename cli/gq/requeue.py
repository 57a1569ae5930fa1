"""`gq requeue`: stop a running job and put it back in the queue, free of charge (rule Z6)."""

import click

from gq import client
from gq.arguments import jobs_argument, json_option
from gq.verdicts import each


@click.command("requeue")
@jobs_argument
@json_option
def command(jobs: tuple[int, ...], as_json: bool) -> int:
    """Stop JOBS and put them back in the queue. They resume from their newest checkpoint."""
    return each(jobs, lambda job: client.post(f"/v1/jobs/{job}/requeue"), as_json)
