"""How `gq` writes: fits the width, colours a terminal only, prints nobody's control characters."""

import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

DEFAULT_WIDTH = 80
GAP = "  "

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}


class Column(NamedTuple):
    """`least` is how narrow the column may get where the table would not fit; 0: it keeps its width. What does
    not fit is cut, or goes on below where the column `wraps`, which only the last one may."""

    title: str
    right: bool = False
    least: int = 0
    wraps: bool = False


class Cell(NamedTuple):
    text: str
    colour: str = ""


class Screen(NamedTuple):
    """What the standard output can show."""

    width: int = DEFAULT_WIDTH
    colours: bool = False
    blocks: bool = True

    def paint(self, text: str, colour: str) -> str:
        """The text in that colour, or as it is where there are none."""
        return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if colour and self.colours else text


def screen() -> Screen:
    """The standard output as it is: COLUMNS, NO_COLOR and TERM are honoured."""
    terminal = sys.stdout.isatty()
    environ = os.environ
    colours = terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    blocks = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return Screen(_width(terminal), colours, blocks)


def _width(terminal: bool) -> int:
    asked = os.environ.get("COLUMNS", "")
    if asked.isascii() and asked.isdigit() and int(asked) > 0:
        return int(asked)
    if terminal:
        try:
            return os.get_terminal_size(sys.stdout.fileno()).columns or DEFAULT_WIDTH
        except OSError:
            return DEFAULT_WIDTH
    return DEFAULT_WIDTH


def plain(text: str) -> str:
    """The text on one line, with nothing in it that a terminal would obey: job names are other people's."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def columns_of(text: str) -> int:
    """How many columns a terminal gives the text."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width  # rarely needed, and not free

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def clip(text: str, width: int) -> str:
    """The text cut to that many columns, ending in … where something was left out."""
    if columns_of(text) <= width:
        return text
    return _first_columns(text, max(width - 1, 0)).rstrip() + "…"


def wrapped(text: str, width: int, most: int | None = None) -> list[str]:
    """The text as lines of at most that width, one at least; what would go beyond `most` lines is cut off.
    Not textwrap: that takes a third of an interpreter's start, and counts a wide character as one column."""
    width = max(width, 20)
    lines, line = [], ""
    for word in plain(text).split():
        if line and columns_of(line) + 1 + columns_of(word) <= width:
            line = f"{line} {word}"
            continue
        lines += [line] if line else []
        while columns_of(word) > width:  # a path, say: no line has room for it
            piece = _first_columns(word, width)
            lines.append(piece)
            word = word[len(piece) :]
        line = word
    lines.append(line)
    if most is None or len(lines) <= most:
        return lines
    return [*lines[: most - 1], clip(" ".join(lines[most - 1 :]), width)]


def labelled(facts: list[tuple[str, str]], on: Screen, least: int = 14) -> list[str]:
    """A line for each (label, text) that has a text, folded below its beginning. `least` columns are the label's."""
    told = [fact for fact in facts if fact[1]]
    width = max([least, *(len(label) + 2 for label, _ in told)])
    lines = []
    for label, text in told:
        first, *rest = wrapped(text, on.width - width)
        lines.append(on.paint(plain(label).ljust(width), "dim") + first)
        lines += [" " * width + more for more in rest]
    return lines


def _first_columns(text: str, width: int) -> str:
    kept = text[:width]
    while columns_of(kept) > width:
        kept = kept[:-1]
    return kept


def table(columns: Sequence[Column], rows: Sequence[Sequence[Cell | str]], on: Screen) -> list[str]:
    """The rows under their titles, within the screen's width."""
    cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    cells = [[Cell(plain(cell.text), cell.colour) for cell in row] for row in cells]
    widths = _widths(columns, cells, on.width)
    titles = [Cell(column.title, "dim") for column in columns]
    return [line for row in [titles, *cells] for line in _lines(columns, row, widths, on)]


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int) -> list[int]:
    widths = [
        max([columns_of(column.title), *(columns_of(row[index].text) for row in rows)])
        for index, column in enumerate(columns)
    ]
    over = sum(widths) + len(GAP) * (len(columns) - 1) - width
    while over > 0:
        narrowable = [i for i, column in enumerate(columns) if column.least and widths[i] > column.least]
        if not narrowable:
            break
        widest = max(narrowable, key=lambda i: widths[i])
        widths[widest] -= 1
        over -= 1
    return widths


def _lines(columns: Sequence[Column], cells: Sequence[Cell], widths: Sequence[int], on: Screen) -> list[str]:
    more: list[str] = []
    if columns[-1].wraps and columns_of(cells[-1].text) > widths[-1]:
        first, *more = wrapped(cells[-1].text, widths[-1])
        cells = [*cells[:-1], Cell(first, cells[-1].colour)]
    parts = []
    for column, cell, width in zip(columns, cells, widths, strict=True):
        text = clip(cell.text, width)
        padding = " " * (width - columns_of(text))
        painted = on.paint(text, cell.colour)
        parts.append(padding + painted if column.right else painted + padding)
    indent = " " * (sum(widths[:-1]) + len(GAP) * (len(widths) - 1))
    return [GAP.join(parts).rstrip(), *(indent + text for text in more)]


def print_json(value: Any) -> None:
    """Records or views as JSON, ASCII only, under the names that travel."""
    import json

    print(json.dumps(value, indent=2))


def complain(message: str, hint: str = "") -> None:
    """One line on what is wrong, one on the way out."""
    sys.stdout.flush()
    print(f"gq: {plain(message)}", file=sys.stderr)
    if hint:
        print(f"  {plain(hint)}", file=sys.stderr)
