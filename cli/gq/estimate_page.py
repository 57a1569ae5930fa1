"""What `gq estimate` prints: the parts of one run, or what a card can hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gpuqueue.wire.units import format_mib
from gq import here
from gq.terminal import plain, screen, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuqueue.estimate.advise import Change
    from gpuqueue.estimate.budget import Cell
    from gpuqueue.estimate.estimate import Estimate
    from gpuqueue.estimate.reading import Reading
    from gpuqueue.estimate.run import Run
    from gpuqueue.wire.jobs import CalibrationView


def print_estimate(
    run: Run,
    reading: Reading | None,
    ignored: list[str],
    cards: tuple[int, ...],
    quota: int | None,
    calibration: CalibrationView | None,
    explain: bool,
    as_json: bool,
) -> None:
    from gpuqueue.estimate.advise import FITS, advise, verdict
    from gpuqueue.estimate.estimate import estimate

    found = estimate(run)
    on = {card: run._replace(card_mib=card) if run.vllm_share else run for card in cards}
    verdicts = [(f"card of {format_mib(card)}", card, verdict(estimate(on[card]), card)) for card in cards]
    if quota:
        verdicts.append((f"quota of {format_mib(quota)}", quota, verdict(found, quota)))
    short = [limit for _, limit, said in verdicts if said != FITS]
    changes = advise(on.get(min(short), run), min(short)) if short else ()
    if as_json:
        import json

        click.echo(
            json.dumps(
                _as_json(run, found, reading, ignored, verdicts, changes) | {"calibration": calibration}, indent=2
            )
        )
        return
    if reading:
        _print_reading(reading, ignored)
    click.echo(f"{run.shape.name}, {run.shape.params / 1e9:.2f} B parameters, {run.method} in {run.weights}")
    for component in found.components:
        line = f"  {component.name:18} {component.bytes / (1 << 30):>9.2f} GiB"
        why = f"{component.formula}  [{component.source}]" if explain else ""
        for number, text in enumerate(wrapped(why, screen().width - len(line) - 3) or [""]):
            click.echo(f"{line if number == 0 else ' ' * len(line)}   {text}".rstrip())
    low, high = format_mib(found.occupied_low_mib), format_mib(found.occupied_high_mib)
    click.echo(f"  peak in: {found.phase}; torch's own peak {format_mib(found.torch_peak_mib)}")
    click.echo(f"needed       {format_mib(found.needed_mib):>10}   the least it can run in")
    click.echo(f"will occupy  {format_mib(found.occupied_mib):>10}   most likely {low} to {high}")
    if calibration:
        click.echo(here.calibration_line(calibration, found.occupied_mib))
    likely_mib = found.occupied_high_mib * (calibration.permille if calibration else 1000) // 1000
    claim, told = _claim(found, likely_mib, cards, quota)
    click.echo(f"claim        {claim:>10}   {told}")
    if not found.starts:
        share, needs = format_mib(found.share_mib), format_mib(found.share_needs_mib)
        _item(f"vLLM does not start: {run.vllm_share:.0%} of the card is {share}, and it needs {needs}")
    for name, _, said in verdicts:
        click.echo(f"{said} the {name}" if said == FITS else f"{said}: {name}")
    for change in changes:
        saved = f"saves {format_mib(change.saves_mib)} " if change.saves_mib > 0 else ""
        _item(f"  - {change.what}: {saved}-> {format_mib(change.occupied_mib)}, {change.verdict}")
        _item(f"      costs: {change.costs}")
    if short and (not changes or changes[-1].verdict != FITS):
        _item("  no change that is known here makes it fit" if not changes else "  that is all that is known here")
    for sentence in found.assumptions:
        _item(f"assumed: {sentence}")


def _print_reading(reading: Reading, ignored: list[str]) -> None:
    for sentence in reading.read:
        _item(f"read: {sentence}")
    for sentence in reading.assumed:
        _item(f"assumed: {sentence}")
    for sentence in reading.unread:
        _item(f"not understood: {sentence}")
    for sentence in ignored:
        _item(f"read but not used: {sentence}")
    if reading.passed:
        _item(f"not looked at: {', '.join(reading.passed)}")


def _item(text: str) -> None:
    """One sentence within the screen's width; what follows its first line is indented by two more."""
    text, room = plain(text), screen().width
    if len(text) <= room:
        click.echo(text)
        return
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    first, *rest = wrapped(text.lstrip(), room - len(indent))
    for line in (indent[2:] + first, *(indent + line for line in rest)):
        click.echo(line)


def _claim(found: Estimate, likely_mib: int, cards: tuple[int, ...], quota: int | None) -> tuple[str, str]:
    """What to write behind --vram, never more than the largest card and the quota grant, and what to know of it."""
    limit_mib = min((each for each in (max(cards, default=0), quota) if each), default=0)
    name = f"{'quota' if limit_mib == quota else 'card'} of {format_mib(limit_mib)}"
    if limit_mib and found.needed_mib > limit_mib:
        return "none", f"no job can: it needs more than the {name}"
    if not found.starts:
        return "none", "vLLM does not start with this share"
    if limit_mib and likely_mib > limit_mib:
        return f"--vram {limit_mib}M", f"all of the {name}: may not be enough"
    told = "covers what is likely; `gq probe` measures it"
    if limit_mib and -(-likely_mib // 1024) * 1024 > limit_mib:
        return f"--vram {limit_mib}M", told
    return _vram(likely_mib), told


def _vram(mib: int) -> str:
    return f"--vram {-(-mib // 1024)}G" if mib > 1024 else f"--vram {mib}M"


def _mib(size: int) -> int:
    return round(size / (1 << 20))


def _as_json(
    run: Run,
    found: Estimate,
    reading: Reading | None,
    ignored: list[str],
    verdicts: list[tuple[str, int, str]],
    changes: tuple[Change, ...],
) -> dict[str, Any]:
    return {
        "model": run.shape.name,
        "params": run.shape.params,
        "method": run.method,
        "weights": run.weights,
        "needed_mib": found.needed_mib,
        "occupied_mib": found.occupied_mib,
        "occupied_low_mib": found.occupied_low_mib,
        "occupied_high_mib": found.occupied_high_mib,
        "torch_peak_mib": found.torch_peak_mib,
        "starts": found.starts,
        "phase": found.phase,
        "components": [
            {"name": each.name, "mib": _mib(each.bytes), "formula": each.formula, "source": each.source}
            for each in found.components
        ],
        "verdicts": [{"of": name, "limit_mib": limit, "verdict": said} for name, limit, said in verdicts],
        "changes": [
            {
                "what": each.what,
                "costs": each.costs,
                "saves_mib": each.saves_mib,
                "occupied_mib": each.occupied_mib,
                "verdict": each.verdict,
            }
            for each in changes
        ],
        "read": reading.read if reading else [],
        "assumed": [*(reading.assumed if reading else []), *found.assumptions],
        "not_understood": reading.unread if reading else [],
        "not_used": ignored,
        "not_looked_at": reading.passed if reading else [],
    }


def print_budget(card_mib: int, context: dict[str, Any], as_json: bool) -> None:
    from gpuqueue.estimate.budget import METHODS, TOKENS, budget

    cells = budget(card_mib, context)
    if as_json:
        import json

        keys = ("model", "method", "needed_mib", "occupied_mib", "verdict", "longest")
        click.echo(json.dumps([{key: getattr(cell, key) for key in keys} for cell in cells], indent=2))
        return
    _item(
        f"A card of {format_mib(card_mib)}, and what `gq estimate MODEL --method METHOD` says: gradient checkpointing, "
        "LoRA rank 16 on all linears, QLoRA in nf4-dq; fused: --loss linear (Liger, CCE), 4-bit: AWQ."
    )
    click.echo(f"\nGiB that one sequence of {TOKENS} tokens will occupy; ~ tight, - does not fit")
    _print_grid(cells, list(METHODS), _occupied)
    click.echo("\nthe longest sequence that fits (not just tight), in tokens; - not even 256")
    _print_grid(cells, list(METHODS), lambda cell: str(cell.longest or "-"))


def _print_grid(cells: list[Cell], methods: list[str], text: Callable[[Cell], str]) -> None:
    """Models by methods, within 80 columns: a method of two words has them one above the other."""
    words = [name.split() for name in methods]
    for line in range(2):
        click.echo((" " * 14 + "".join(f"{each[line] if line < len(each) else '':>8}" for each in words)).rstrip())
    for model in dict.fromkeys(cell.model for cell in cells):
        row = {cell.method: text(cell) for cell in cells if cell.model == model}
        click.echo(f"{model:14}" + "".join(f"{row[name]:>8}" for name in methods))


def _occupied(cell: Cell) -> str:
    if cell.verdict == "does not fit":
        return "-"
    return f"{'~' if cell.verdict == 'tight' else ''}{cell.occupied_mib / 1024:.1f}"
