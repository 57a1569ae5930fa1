"""`gq checkpoints DIR`: every checkpoint under a directory, each with its verdict. Needs no daemon."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from gpuqueue.checkpoints.model import Verdict


@click.command(name="checkpoints")
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list instead of a table.")
def command(directory: str, as_json: bool) -> None:
    """Show the checkpoints under DIRECTORY: which are complete, which are not and why.

    A job that starts again resumes from the complete one with the largest step.
    """
    from gpuqueue.checkpoints.newest import all_checkpoints, newest_complete
    from gpuqueue.checkpoints.space import room_for_next

    verdicts = all_checkpoints(directory)
    newest = newest_complete(directory)
    picked = newest.checkpoint.path if newest.checkpoint else None
    if as_json:
        rows = [asdict(one) | {"complete": one.complete, "newest": one.path == picked} for one in verdicts]
        click.echo(json.dumps(rows, indent=2))
    else:
        _print_table(Path(directory).absolute(), verdicts, picked)
    if warning := room_for_next(directory, newest):
        click.echo(warning, err=True)


def _print_table(directory: Path, verdicts: list[Verdict], picked: str | None) -> None:
    if not verdicts:
        click.echo(f"No checkpoint under {directory}.")
        return
    click.echo(f"{'STEP':>9}  {'LAYOUT':11}  {'SIZE':>9}  {'COMPLETED':16}  CHECKPOINT")
    for one in verdicts:
        path = Path(one.path)
        name = path.relative_to(directory) if path.is_relative_to(directory) else path
        step = "-" if one.step is None else one.step
        mark = "  <- newest complete" if one.path == picked else ""
        size, when = _size(one.size_bytes), _when(one.completed_at)
        click.echo(f"{step:>9}  {one.layout or '-':11}  {size:>9}  {when:16}  {click.format_filename(name)}{mark}")
        if one.reason is not None:
            click.echo(f"{'':9}  not usable: {one.reason}")


def _size(size_bytes: int) -> str:
    if size_bytes < 1 << 30:
        return f"{size_bytes / (1 << 20):.1f} MiB"
    return f"{size_bytes / (1 << 30):.1f} GiB"


def _when(completed_at: float | None) -> str:
    if completed_at is None:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(completed_at))
