"""`gq events`: what happened, in order: starts, stops, ends, and every act of an admin (rule A5)."""

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from gq import client
from gq.arguments import JobId, json_option
from gq.exits import DONE, INTERRUPTED
from gq.terminal import Cell, Column, Screen, clip, plain, print_json, screen, table
from gq.words import at_words

if TYPE_CHECKING:
    from gpuqueue.wire.jobs import EventView


@click.command("events")
@click.option("--follow", "-f", "following", is_flag=True, help="Go on as things happen.")
@click.option("--job", type=JobId(), metavar="JOB", help="Only of this job.")
@click.option("--after", type=click.IntRange(0), metavar="ID", help="Only what came after event ID.")
@click.option("--limit", "-n", type=click.IntRange(1, 1000), metavar="N", help="At most N of them.")
@json_option
def command(following: bool, job: int | None, after: int | None, limit: int | None, as_json: bool) -> int:
    """What happened. With -f and --json: one JSON object a line."""
    events = client.get("/v1/events", after=after, limit=limit, job=job)
    if not following:
        if as_json:
            print_json(events)
        else:
            print("\n".join(event_lines(events, screen())) if events else "nothing happened yet")
        return DONE
    last = -1 if after is None else after  # -1: from now on
    for event in events:
        _print_one(event, as_json)
        last = event.id
    try:
        while True:
            last = client.patiently(lambda: _stream(last, job, as_json))  # noqa: B023 - called at once
            time.sleep(1)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return INTERRUPTED


def event_lines(events: "list[EventView]", on: Screen) -> list[str]:
    """The events as a table."""
    columns = [
        Column("ID", right=True),
        Column("WHEN"),
        Column("JOB", right=True),
        Column("BY", least=6),
        Column("WHAT", least=20, wraps=True),
    ]
    rows: list[list[Cell | str]] = [
        [str(event.id), at_words(event.at), str(event.job_id or ""), event.actor, event.text] for event in events
    ]
    return table(columns, rows, on)


def _stream(after: int, job: int | None, as_json: bool) -> int:
    """Prints what the daemon streams until the connection ends; returns the last event's id."""
    last = after
    with client.send("GET", "/v1/events/stream", {"after": after}, timeout_s=None) as answer:
        try:
            for line in client.lines(answer):
                if not line.startswith("data:"):
                    continue
                event = client.parsed(line[5:].encode())
                last = event.id
                if job is None or event.job_id == job:
                    _print_one(event, as_json)
        except client.LostConnection:
            if last == after:
                raise
    return last


def _print_one(event: Any, as_json: bool) -> None:
    if as_json:
        print(json.dumps(event), flush=True)
        return
    line = plain(f"{at_words(event.at)}  {event.text} ({event.actor})")
    print(clip(line, screen().width) if sys.stdout.isatty() else line, flush=True)
