"""`gq show`: all about one job: what was asked for, what it did, each attempt, and what happened to it."""

import time
from typing import TYPE_CHECKING

import click

from gpuqueue.wire.units import format_mib, format_seconds
from gq import client
from gq.arguments import job_argument, json_option
from gq.curves import curve_lines, estimate_lines
from gq.terminal import Cell, Column, Screen, clip, labelled, plain, print_json, screen, table, wrapped
from gq.words import STATE_COLOURS, ago_words, at_words, cards_words, claim_words, doing, gib

if TYPE_CHECKING:
    from gpuqueue.wire.jobs import AttemptView, EventView, JobDetail, JobView

UNSEEN_S = 10  # less is no more than when the daemon looked


@click.command("show")
@job_argument
@json_option
def command(job: int, as_json: bool) -> None:
    """All about job JOB."""
    detail = client.get(f"/v1/jobs/{job}")
    if as_json:
        print_json(detail)
    else:
        print("\n".join(page(detail, screen())))


def page(detail: "JobDetail", on: Screen) -> list[str]:
    """The lines of `gq show`."""
    job = detail.job
    state = on.paint(job.state, STATE_COLOURS.get(job.state, ""))
    first, *rest = wrapped(doing(job), on.width)
    name = clip(plain(job.name), on.width - 24)
    lines = [f"job {job.id}  {on.paint(name, 'bold')}", first.replace(job.state, state, 1), *rest, ""]
    facts = [*_facts(detail), ("checkpoint", detail.checkpoint or ""), ("log", detail.log_path or "")]
    lines += labelled(facts, on)
    if detail.settings:
        lines += ["", on.paint("as submitted", "dim"), *labelled(list(detail.settings.items()), on)]
    if detail.attempts:
        lines += ["", *attempt_lines(detail.attempts, on), *diagnosis_lines(detail.attempts, on)]
        lines += _vram(detail, on)
    if detail.events:
        lines += ["", on.paint("what happened", "dim"), *(_event(event, on) for event in detail.events)]
    return lines


def _facts(detail: "JobDetail") -> list[tuple[str, str]]:
    job = detail.job
    owner = job.user if job.account == job.user else f"{job.user}, account {job.account}"
    used = [f"{format_mib(mib)} {what}" for mib, what in _measured(job)]
    return [
        ("user", owner),
        ("class", job.job_class),
        ("VRAM", ", ".join([f"{claim_words(job)} claimed", *used])),
        ("borrowed", format_mib(job.borrowed_mib) if job.borrowed_mib else ""),
        ("card", cards_words(job.cards)),
        ("command", job.command),
        ("submitted", ago_words(job.submitted_at)),
        ("started", ago_words(job.started_at) if job.started_at is not None else ""),
        ("ended", ago_words(job.ended_at) if job.ended_at is not None else ""),
        ("ran", _ran(detail)),
        ("attempt", str(job.attempt) if job.attempt else ""),
        ("resumed from", job.resumed_from or ""),
        ("exit status", str(job.exit_code) if job.exit_code is not None else ""),
    ]


def _measured(job: "JobView") -> list[tuple[int, str]]:
    pairs = [(job.used_vram_mib, "in use"), (job.peak_vram_mib, "at most")]
    return [(mib, what) for mib, what in pairs if mib is not None]


def _ran(detail: "JobDetail") -> str:
    """What counts towards the time limit, and what it took by the clock where a daemon that was down makes a
    difference."""
    job = detail.job
    if not job.ran_s and job.started_at is None:
        return ""
    limit = f" of {format_seconds(job.limit_s)}" if job.limit_s else ""
    clock_s = round(sum((one.ended_at or time.time()) - one.started_at for one in detail.attempts))
    unseen_s = clock_s - job.ran_s
    unseen = f", and {format_seconds(unseen_s)} unseen while the daemon was down" if unseen_s >= UNSEEN_S else ""
    return format_seconds(job.ran_s) + limit + unseen


def attempt_lines(attempts: "list[AttemptView]", on: Screen) -> list[str]:
    """The attempts as a table, each with its outcome."""
    columns = [
        Column("TRY", right=True),
        Column("CARD"),
        Column("STARTED"),
        Column("RAN", right=True),
        Column("EXIT", right=True),
        Column("PEAK GiB", right=True),
        Column("OUTCOME", least=20, wraps=True),
    ]
    rows: list[list[Cell | str]] = [
        [
            str(attempt.number),
            cards_words(attempt.cards),
            at_words(attempt.started_at),
            format_seconds(attempt.ended_at - attempt.started_at) if attempt.ended_at is not None else "",
            str(attempt.exit_code) if attempt.exit_code is not None else "",
            gib(attempt.peak_vram_mib) if attempt.peak_vram_mib is not None else "",
            f"{attempt.outcome} (from {attempt.resumed_from})" if attempt.resumed_from else attempt.outcome,
        ]
        for attempt in attempts
    ]
    return table(columns, rows, on)


def diagnosis_lines(attempts: "list[AttemptView]", on: Screen) -> list[str]:
    """Why attempts failed, and what to do; those that failed of the same together."""
    tries: dict[tuple[str, str, str, str], list[int]] = {}
    for attempt in attempts:
        if (found := attempt.diagnosis) is not None:
            same = (found.cause, found.confidence, found.evidence, found.advice)
            tries.setdefault(same, []).append(attempt.number)
    lines = []
    for (cause, confidence, evidence, advice), numbers in tries.items():
        words = f"{cause.replace('_', ' ')} (confidence {confidence})"
        facts = [("cause", words), ("evidence", evidence), ("advice", advice)]
        heading = on.paint(f"why try {', '.join(map(str, numbers))} failed", "dim")
        lines += ["", heading, *labelled(facts, on)]
    return lines


def _vram(detail: "JobDetail", on: Screen) -> list[str]:
    """The VRAM of the newest attempt: its curve, and how it compares with the estimate."""
    newest = detail.attempts[-1]
    curve = curve_lines(newest, on)
    if curve:
        curve = ["", on.paint(f"VRAM of try {newest.number}", "dim"), *curve]
    compared = estimate_lines(detail.estimate, newest, on)
    return [*curve, *(["", *compared] if compared else [])]


def _event(event: "EventView", on: Screen) -> str:
    when = at_words(event.at)
    first, *rest = wrapped(event.text, on.width - len(when) - 2)
    return "\n".join([f"{on.paint(when, 'dim')}  {first}", *(" " * (len(when) + 2) + more for more in rest)])
