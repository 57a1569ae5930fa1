"""`gq history`: what past runs took, beside what they claimed. Kept longer than jobs are; `--csv` exports all of it."""

import sys
from typing import TYPE_CHECKING, Any

import click

from gpuqueue.wire.units import format_seconds
from gq import client
from gq.arguments import json_option
from gq.exits import usage
from gq.terminal import Cell, Column, Screen, plain, print_json, screen, table
from gq.words import STATE_COLOURS, at_words, gib

if TYPE_CHECKING:
    from gpuqueue.wire.jobs import RunView

PAGE = 1000  # rows of one answer
SHOWN = 30
TORCH = ("torch_allocated_mib", "torch_reserved_mib", "torch_context_mib")
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would run


@click.command("history")
@click.option("--all", "everybody", is_flag=True, help="Everybody's runs, not only your own.")
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", help=f"At most so many [{SHOWN}; with --csv, --json all]."
)
@click.option("--csv", "as_csv", is_flag=True, help="For a spreadsheet: all fields, a header first.")
@json_option
def command(everybody: bool, limit: int | None, as_csv: bool, as_json: bool) -> None:
    """What past runs claimed and took, newest first: one line for each attempt."""
    if as_csv and as_json:
        raise usage("--csv and --json exclude each other")
    runs = _fetch(everybody, limit if limit is not None else None if as_csv or as_json else SHOWN)
    if as_csv:
        _print_csv(runs)
    elif as_json:
        print_json(runs)
    elif not runs:
        print("no run has ended yet" if everybody else "no run of yours has ended yet; --all shows everybody's")
    else:
        print("\n".join(history_lines(runs, screen(), everybody)))


def _fetch(everybody: bool, limit: int | None) -> "list[RunView]":
    """Page by page, newest first; all of them where there is no limit."""
    runs: list[Any] = []
    while limit is None or len(runs) < limit:
        size = PAGE if limit is None else min(PAGE, limit - len(runs))
        page = client.get("/v1/history", all=int(everybody), limit=size, before=runs[-1].id if runs else None)
        runs += page
        if len(page) < size:
            break
    return runs


def history_lines(runs: "list[RunView]", on: Screen, everybody: bool = False) -> list[str]:
    """The runs as a table. PEAK is empty where nothing was measured."""
    columns = [
        Column("JOB.TRY", right=True),
        *([Column("ACCOUNT", least=6)] if everybody else []),
        Column("NAME", least=10),
        Column("ENDED"),
        Column("RAN", right=True),
        Column("CLAIM", right=True),
        Column("PEAK GiB", right=True),
        Column("HOW", least=9),
    ]
    rows: list[list[Cell | str]] = [
        [
            f"{run.job_id}.{run.attempt}",
            *([run.account] if everybody else []),
            run.name,
            _day(run.ended_at),
            format_seconds(run.ran_s),
            gib(run.claim_mib),
            gib(run.peak_mib) if run.peak_mib is not None else "",
            Cell(_how(run), STATE_COLOURS.get(run.state, "")),
        ]
        for run in runs
    ]
    return table(columns, rows, on)


def _day(unix_s: int) -> str:
    """The time today, else the date."""
    return at_words(unix_s).partition(" ")[0]


def _how(run: "RunView") -> str:
    return f"{run.state}, {run.cause.replace('_', ' ')}" if run.cause else str(run.state)


def _print_csv(runs: "list[RunView]") -> None:
    """RFC 4180. Names are other people's: one that a spreadsheet would take for a formula gets a ' before it."""
    import csv
    from dataclasses import fields

    from gpuqueue.wire.jobs import RunView, TensorParts

    names = ["class" if field.name == "job_class" else field.name for field in fields(RunView)]
    names = [name for name in names if name not in ("estimate_parts", "torch")]
    parts = [field.name for field in fields(TensorParts)]
    sys.stdout.reconfigure(newline="")  # type: ignore[union-attr]
    writer = csv.writer(sys.stdout)
    writer.writerow([*names, *(f"estimate_{part}" for part in parts), *TORCH, *(f"torch_{part}" for part in parts)])
    for run in runs:
        row = [_cell(getattr(run, name)) for name in names]
        torch = run.torch
        row += [_field(run.estimate_parts, part) for part in parts]
        row += [_field(torch, name.removeprefix("torch_")) for name in TORCH]
        row += [_field(torch.parts if torch else None, part) for part in parts]
        writer.writerow(row)


def _field(record: Any, name: str) -> Any:
    """Empty where the record is not there."""
    return getattr(record, name) if record else None


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = plain(value)
    return f"'{text}" if text.startswith(FORMULA) else text
