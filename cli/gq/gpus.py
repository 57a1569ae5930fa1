"""`gq gpus`: each card, who holds what on it, and who is there without a job (rules M4, F1)."""

from typing import TYPE_CHECKING

import click

from gpuqueue.wire.units import format_mib
from gq import client
from gq.arguments import json_option
from gq.bars import MEANING, PARTS, bar, legend, parts_of
from gq.terminal import Cell, Column, Screen, plain, print_json, screen, table, wrapped
from gq.words import gib, owner_words

if TYPE_CHECKING:
    from gpuqueue.wire.jobs import CardView

INDENT = "  "
MOST_CELLS = 100


@click.command("gpus")
@json_option
def command(as_json: bool) -> None:
    """Each card: who holds what, and who is a stranger."""
    cards = client.get("/v1/cards")
    if as_json:
        print_json(cards)
    elif not cards:
        print("no cards: `gq doctor` says why")
    else:
        print("\n".join(page(cards, screen())))


def page(cards: "list[CardView]", on: Screen) -> list[str]:
    """The lines of `gq gpus`."""
    lines = []
    for card in cards:
        lines += [*_card(card, on), ""]
    return [*lines, legend(cards, on)]


def _card(card: "CardView", on: Screen) -> list[str]:
    cells = min(on.width - len(INDENT), MOST_CELLS)
    inner = on._replace(width=on.width - len(INDENT))
    lines = [_head(card, on), INDENT + bar(card, cells, on)]
    lines += [INDENT + line for line in wrapped(_amounts(card), inner.width)]
    remarks = [(f"drained: {card.drained}", "red")] if card.drained is not None else []
    for text, colour in [*remarks, *((note, "yellow") for note in card.notes)]:
        lines += [INDENT + on.paint(line, colour) for line in wrapped(text, inner.width)]
    if card.tenants:
        lines += [INDENT + line for line in _tenants(card, inner)]
    if card.strangers:
        lines += [INDENT + line for line in _strangers(card, inner)]
    return lines


def _head(card: "CardView", on: Screen) -> str:
    parts = [plain(card.name)]
    if card.simulated:
        parts.append(on.paint("simulated", "yellow"))
    if card.gpu_percent is not None:
        parts.append(f"GPU {card.gpu_percent} %")
    if card.temperature_c is not None:
        parts.append(f"{card.temperature_c} °C" if on.blocks else f"{card.temperature_c} C")
    return f"{on.paint(f'card {card.index}', 'bold')}  " + "  ".join(parts)


def _amounts(card: "CardView") -> str:
    parts = parts_of(card)
    words = [f"{gib(parts[part])} {MEANING[part]}" for part in PARTS if parts[part] or part == "free"]
    return f"{', '.join(words)}; {format_mib(card.capacity_mib)} in all"


def _tenants(card: "CardView", on: Screen) -> list[str]:
    columns = [
        Column("JOB", right=True),
        Column("USER", least=6),
        Column("CLASS"),
        Column("CLAIM", right=True),
        Column("COUNTS FOR", right=True),
        Column("IN USE", right=True),
    ]
    rows: list[list[Cell | str]] = [
        [
            str(tenant.job_id),
            owner_words(tenant.account, tenant.user),
            tenant.job_class,
            format_mib(tenant.claim_mib),
            format_mib(tenant.charge_mib),
            "hidden" if tenant.used_mib is None else format_mib(tenant.used_mib),
        ]
        for tenant in card.tenants
    ]
    return table(columns, rows, on)


def _strangers(card: "CardView", on: Screen) -> list[str]:
    columns = [
        Column("STRANGER", right=True),
        Column("USER", least=6),
        Column("IN USE", right=True),
        Column("COMMAND", least=10),
    ]
    rows: list[list[Cell | str]] = [
        [
            str(stranger.pid),
            stranger.user,
            "hidden" if stranger.used_mib is None else format_mib(stranger.used_mib),
            stranger.command,
        ]
        for stranger in card.strangers
    ]
    return table(columns, rows, on)
