"""`gq logs`: what a job printed, as it was, byte for byte."""

import sys

import click

from gq import client
from gq.arguments import job_argument
from gq.exits import DONE, INTERRUPTED, usage
from gq.follow import PIECE, Piece, ended_line, follow, goes_on, read_piece, write
from gq.terminal import plain
from gq.words import standing

FIRST_LOOK = 64 * 1024  # bytes from the end in which the last lines are looked for first


@click.command("logs")
@job_argument
@click.option("--follow", "-f", "following", is_flag=True, help="Go on until the job ends, over all its attempts.")
@click.option("--lines", "-n", type=click.IntRange(0), metavar="N", help="Only the last N lines.")
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="Of attempt N instead of the newest.")
def command(job: int, following: bool, lines: int | None, attempt: int | None) -> int:
    """What job JOB printed."""
    if following and attempt is not None:
        raise usage("-f follows the newest attempt: --attempt does not go with it", f"gq logs -f {job}")
    if not following:
        return _print_all(job, attempt, _start(job, attempt, lines))
    try:
        start = 0 if lines is None else _start(job, None, lines)
        print(ended_line(follow(job, start)), file=sys.stderr)
        return DONE
    except KeyboardInterrupt:
        print(f"\n{goes_on(job)}", file=sys.stderr)
        return INTERRUPTED


def _print_all(job: int, attempt: int | None, offset: int) -> int:
    while True:
        piece = read_piece(job, attempt, offset)
        if piece.attempt == 0:
            print(f"gq: {plain(standing(client.get(f'/v1/jobs/{job}/why')))}; it has not started", file=sys.stderr)
        write(piece)
        if not piece.data or piece.next_offset >= piece.size:
            return DONE
        attempt, offset = piece.attempt or None, piece.next_offset


def _start(job: int, attempt: int | None, lines: int | None) -> int:
    """The offset at which the last `lines` lines begin; 0 for all of them."""
    if lines is None:
        return 0
    size, look = read_piece(job, attempt, 0, limit=1).size, FIRST_LOOK
    while True:
        piece = read_piece(job, attempt, max(size - look, 0), limit=look)
        start = _last_lines(piece, lines)
        if start is not None or piece.offset == 0 or look >= PIECE:
            return piece.offset if start is None else start
        look *= 4


def _last_lines(piece: Piece, lines: int) -> int | None:
    """Where the last `lines` lines begin, or None where the piece does not reach back that far."""
    position = len(piece.data.removesuffix(b"\n"))
    if lines == 0:
        return piece.next_offset
    for _ in range(lines):
        position = piece.data.rfind(b"\n", 0, position)
        if position < 0:
            return None
    return piece.offset + position + 1
