"""`gq status`: the cards, the queue in its order, and why each waiting job waits."""

import click

from gq import client
from gq.arguments import json_option
from gq.overview import print_overview
from gq.terminal import print_json


@click.command("status")
@click.option("--all", "-a", "ended", is_flag=True, help="Also the jobs that ended recently.")
@click.option("--user", metavar="NAME", help="Only this user's jobs.")
@click.option("--limit", type=click.IntRange(1, 1000), metavar="N", help="With --all: at most N that ended.")
@json_option
def command(ended: bool, user: str | None, limit: int | None, as_json: bool) -> None:
    """The cards and the queue."""
    if as_json:
        print_json(client.get("/v1/jobs", all=int(ended), user=user, limit=limit))
    else:
        print_overview(ended, user, limit)
