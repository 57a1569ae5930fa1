"""`gq checkpoints DIR`: every checkpoint under a directory, each with its verdict. Needs no daemon."""

from __future__ import annotations

import json
from dataclasses import asdict

import click


@click.command(name="checkpoints")
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list instead of a table.")
def command(directory: str, as_json: bool) -> None:
    """Show the checkpoints under DIRECTORY: which are complete, which are not and why.

    A job that restarts resumes from the newest complete one.
    """
    from gpuqueue.checkpoints.newest import all_checkpoints

    verdicts = all_checkpoints(directory)
    if as_json:
        click.echo(json.dumps([asdict(v) | {"complete": v.complete} for v in verdicts], indent=2))
        return
    for verdict in verdicts:
        click.echo(f"{verdict.step} {verdict.layout} {verdict.path}: {verdict.reason or 'complete'}")
