"""An attempt's VRAM curve as a picture of text, and what it took beside what was estimated."""

from typing import TYPE_CHECKING

from gpuqueue.wire.units import format_mib, format_seconds
from gq.terminal import Cell, Column, Screen, table

if TYPE_CHECKING:
    from gpuqueue.wire.jobs import AttemptView, Estimated, TensorParts

ROWS = 6
MOST_CELLS = 100
LABEL = 9  # `22.0 GiB`
EIGHTHS = " ▁▂▃▄▅▆▇█"
KINDS = ("frozen weights", "trained weights", "gradients", "optimizer", "activations, rest")  # of TensorParts, in order
PARTS = ("tensors", "allocator's cache", "context, libraries", "in all")

Sizes = dict[str, int | None]  # of KINDS and PARTS


def curve_lines(attempt: "AttemptView", on: Screen) -> list[str]:
    """The curve over its time axis, and one line that says the peak, when it was, and how fast it grows. Nothing for
    an attempt that was hardly seen."""
    points = attempt.curve
    if len(points) < 2 or not attempt.peak_vram_mib:
        return []
    cells = min(on.width - LABEL - 3, MOST_CELLS)
    last_s = max(at for at, _ in points)
    heights = _cells(points, cells, last_s)
    corner, side, floor = ("└", "│", "─") if on.blocks else ("+", "|", "-")
    lines = []
    for row in range(ROWS, 0, -1):
        label = format_mib(attempt.peak_vram_mib) if row == ROWS else ""
        bars = "".join(_mark(mib * ROWS * 8 // attempt.peak_vram_mib - (row - 1) * 8, on) for mib in heights)
        lines.append(f"{label:>{LABEL}} {side}{on.paint(bars.rstrip(), 'green')}")
    lines.append(f"{'0':>{LABEL}} {corner}{floor * cells}")
    lines.append(" " * (LABEL + 2) + "0s" + f"{format_seconds(last_s):>{cells - 2}}")
    return [*lines, " " * (LABEL + 2) + _summary(attempt)]


def _cells(points: list[tuple[int, int]], cells: int, last_s: int) -> list[int]:
    """The highest MiB of each cell's time; a cell without a point of its own goes on with the one before it."""
    highest = [-1] * cells
    for at, mib in points:
        cell = min(at * cells // max(last_s, 1), cells - 1)
        highest[cell] = max(highest[cell], mib)
    before = 0
    for cell, mib in enumerate(highest):
        before = highest[cell] = before if mib < 0 else mib
    return highest


def _mark(eighths: int, on: Screen) -> str:
    filled = min(max(eighths, 0), 8)
    return EIGHTHS[filled] if on.blocks else "#" if filled >= 4 else " "


def _summary(attempt: "AttemptView") -> str:
    parts = [f"peak {format_mib(attempt.peak_vram_mib or 0)}"]
    if attempt.peak_at_s is not None:
        parts[0] += f" after {format_seconds(attempt.peak_at_s)}"
    growth = attempt.growth_mib_per_hour
    if growth is not None:
        parts.append(f"{growth / 60:+.1f} MiB a minute" if growth else "no growth")
    return ", ".join(parts)


def estimate_lines(estimate: "Estimated | None", attempt: "AttemptView", on: Screen) -> list[str]:
    """What was estimated, what PyTorch reported and what the card showed, part by part; nothing where the card's
    reading is all there is."""
    if estimate is None and attempt.torch is None:
        return []
    columns = [Column("AT ITS PEAK"), *(Column(name, right=True) for name in ("ESTIMATED", "TORCH", "CARD"))]
    sides = (_estimated(estimate), _reported(attempt), _measured(attempt))
    counted = attempt.torch is not None and attempt.torch.parts is not None
    names = [*(f"  {kind}" for kind in KINDS if counted), *PARTS]
    rows: list[list[Cell | str]] = [[name, *(_size(side.get(name.strip())) for side in sides)] for name in names]
    return table(columns, rows, on)


def _size(mib: int | None) -> str:
    return "" if mib is None else format_mib(mib)


def _tensors(peak_mib: int, parts: "TensorParts | None") -> Sizes:
    """torch's peak, and what it consists of where somebody counted that."""
    if parts is None:
        return {"tensors": peak_mib}
    kinds = (parts.frozen_mib, parts.trained_mib, parts.gradients_mib, parts.optimizer_mib, parts.rest_mib)
    return {"tensors": peak_mib, **dict(zip(KINDS, kinds, strict=True))}


def _estimated(estimate: "Estimated | None") -> Sizes:
    if estimate is None:
        return {}
    return _tensors(estimate.torch_peak_mib, estimate.parts) | {
        "allocator's cache": estimate.occupied_mib - estimate.torch_peak_mib - estimate.context_mib,
        "context, libraries": estimate.context_mib,
        "in all": estimate.occupied_mib,
    }


def _reported(attempt: "AttemptView") -> Sizes:
    torch = attempt.torch
    if torch is None:
        return {}
    return _tensors(torch.allocated_mib, torch.parts) | {
        "allocator's cache": torch.reserved_mib - torch.allocated_mib,
        "context, libraries": torch.context_mib,
        "in all": None if torch.context_mib is None else torch.reserved_mib + torch.context_mib,
    }


def _measured(attempt: "AttemptView") -> Sizes:
    """The card shows a sum; with what torch reserved, the rest of it is told."""
    rest = None
    if attempt.torch is not None and attempt.peak_vram_mib is not None:
        rest = max(0, attempt.peak_vram_mib - attempt.torch.reserved_mib)
    return {"context, libraries": rest, "in all": attempt.peak_vram_mib}
