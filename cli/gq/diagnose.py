"""`gq diagnose FILE`: why a job ended, from its log alone. Needs no daemon."""

import json
import os
import sys
from pathlib import Path
from typing import BinaryIO

import click

from gq.exits import usage
from gq.terminal import labelled, screen

TAIL_BYTES = 512 * 1024
WAY_OUT = "give the path of a log, or - for standard input"


@click.command("diagnose")
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--exit-status",
    type=int,
    metavar="N",
    help="How the job ended: its exit status; 128 + n or -n for a signal.",
)
def command(file: str, as_json: bool, exit_status: int | None) -> None:
    """Say why the job that wrote the log FILE ended, and what to do ("-" reads standard input)."""
    from gpuqueue.diagnose.diagnose import diagnose
    from gpuqueue.diagnose.finding import Evidence, Finding

    finding: Finding = diagnose(Evidence(log_tail=_tail_of(file), exit_status=exit_status))
    if as_json:
        click.echo(json.dumps(finding.as_dict()))
        return
    during = f", during {finding.phase}" if finding.phase else ""
    facts = [
        ("cause", f"{finding.cause} (confidence {finding.confidence}{during})"),
        ("evidence", finding.evidence or "-"),
        ("pids", " ".join(map(str, finding.pids))),
        ("advice", finding.advice),
        ("retry", str(finding.retry)),
    ]
    click.echo("\n".join(labelled(facts, screen(), least=10)))


def _tail_of(file: str) -> str:
    if file == "-":
        return _decoded(_last_bytes(sys.stdin.buffer))
    try:
        with Path(file).open("rb") as log:
            return _decoded(_last_bytes(log))
    except OSError as error:
        reason = error.strerror or str(error)
        raise usage(f"{file}: {reason}", WAY_OUT) from None
    except ValueError:  # a NUL in the path
        raise usage(f"{file!r} is not a path", WAY_OUT) from None


def _last_bytes(log: BinaryIO) -> bytes:
    if log.seekable():
        log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL_BYTES))
    tail = b""
    while chunk := log.read(TAIL_BYTES):
        tail = (tail + chunk)[-TAIL_BYTES:]
    return tail


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")
