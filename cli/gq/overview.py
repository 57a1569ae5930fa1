"""The cards, the queue in its order, and why each waiting job waits: what `gq status` prints."""

from typing import TYPE_CHECKING

from gpuqueue.wire.states import FINAL_STATES, WAITING_STATES, JobState
from gpuqueue.wire.units import format_seconds
from gq import client
from gq.bars import bar, legend
from gq.terminal import Cell, Column, Screen, clip, plain, screen, table, wrapped
from gq.words import STATE_COLOURS, cards_words, gib, owner_words

if TYPE_CHECKING:
    from gpuqueue.wire.jobs import CardView, JobView, NodeView

WIDE = 110  # from here on the table shows more columns
BAR_CELLS = 24
MOST_REASON_LINES = 2  # `gq why` has the whole


def print_overview(ended: bool = False, user: str | None = None, limit: int | None = None) -> None:
    """Asks the daemon, and prints the cards and the queue."""
    jobs = client.get("/v1/jobs", all=int(ended), user=user, limit=limit)
    node = client.get("/v1/node")
    print("\n".join(page(node, jobs, screen(), whose=user, ended=ended)))


def page(
    node: "NodeView", jobs: "list[JobView]", on: Screen, whose: str | None = None, ended: bool = False
) -> list[str]:
    """The lines of `gq status`. `ended`: the jobs that ended are among those that were asked for."""
    lines = [_head(node, on), *_fault(node, on), *_cards(node.cards, on), ""]
    if jobs:
        return lines + job_lines(jobs, on)
    of_whom = f" of {plain(whose)}" if whose else ""
    lines += [f"No {'' if ended else 'open '}jobs{of_whom}. Submit one:  gq submit --vram 8G train.sh"]
    return lines if ended else [*lines, "Those that ended:  gq status --all"]


def _head(node: "NodeView", on: Screen) -> str:
    parts = [on.paint(f"gpuqueue on {plain(node.host)}", "bold"), f"{node.running} running", f"{node.queued} waiting"]
    if node.simulated:
        parts.append(on.paint("simulated cards", "yellow"))
    return " · ".join(parts) if on.blocks else ", ".join(parts)


def _fault(node: "NodeView", on: Screen) -> list[str]:
    if node.fault is None:
        return []
    text = f"NOT SUPERVISED: {node.fault}. Jobs run on, but none is started or stopped until this is cured: `gq doctor`"
    return [on.paint(line, "red") for line in wrapped(text, on.width)]


def _cards(cards: "list[CardView]", on: Screen) -> list[str]:
    if not cards:
        return ["no cards: `gq doctor` says why"]
    texts = [_card_text(card) for card in cards]
    label = max(len(str(card.index)) for card in cards) + 5
    room = on.width - label - 4 - max(len(text) for text in texts)
    cells = max(min(room, BAR_CELLS + (on.width - 80) // 2), 8)
    lines = []
    for card, text in zip(cards, texts, strict=True):
        name = f"card {card.index}".ljust(label)
        left = on.width - label - cells - 4
        lines.append(f"{name}  {bar(card, cells, on)}  {clip(text, left)}")
        if card.drained is not None:
            drained = clip(f"drained: {plain(card.drained)}", on.width - label - 2)
            lines.append(" " * (label + 2) + on.paint(drained, "red"))
    return [*lines, " " * (label + 2) + legend(cards, on)]


def _card_text(card: "CardView") -> str:
    text = f"{gib(card.charged_mib)} of {gib(card.capacity_mib)} GiB claimed"
    return f"{text}, {gib(card.used_mib)} in use"


def job_lines(jobs: "list[JobView]", on: Screen) -> list[str]:
    """The jobs as a table, with a line under each that has something to say."""
    wide = on.width >= WIDE
    columns = [
        Column("ID", right=True),
        Column("USER", least=6),
        Column("CLASS"),
        Column("STATE"),
        Column("VRAM GiB", right=True),
        Column("CARD", least=4),
        Column("TIME", right=True),
        *([Column("LIMIT", right=True), Column("TRY", right=True)] if wide else []),
        Column("NAME", least=8),
        *([Column("COMMAND", least=12)] if wide else []),
    ]
    rows = table(columns, [_row(job, wide) for job in jobs], on)
    indent = " " * (max(len(str(job.id)) for job in jobs) + 2)
    lines = [rows[0]]
    for job, row in zip(jobs, rows[1:], strict=True):
        lines.append(row)
        if job.reason and job.state != JobState.SUCCEEDED:
            colour = "yellow" if job.state == JobState.RUNNING else "dim"  # of a running job it is a warning
            told = wrapped(job.reason, on.width - len(indent), MOST_REASON_LINES)
            lines += [indent + on.paint(line, colour) for line in told]
    return lines


def _row(job: "JobView", wide: bool) -> list[Cell | str]:
    more = [format_seconds(job.limit_s) if job.limit_s else "", str(job.attempt or "")]
    return [
        str(job.id),
        owner_words(job.account, job.user),
        job.job_class,
        Cell(job.state, STATE_COLOURS.get(job.state, "")),
        _vram(job),
        cards_words(job.cards),
        format_seconds(job.state_s if job.state in WAITING_STATES else job.ran_s),
        *(more if wide else []),
        job.name,
        *([job.command] if wide else []),
    ]


def _vram(job: "JobView") -> str:
    """Used of claimed while it runs, the peak of claimed once it ended, the claim alone before."""
    if job.vram_mib == 0:
        return "none"
    claim = gib(job.vram_mib) if job.gpus == 1 else f"{job.gpus}×{gib(job.vram_mib)}"
    measured = job.peak_vram_mib if job.state in FINAL_STATES else job.used_vram_mib
    return claim if measured is None or job.state in WAITING_STATES else f"{gib(measured)}/{claim}"
