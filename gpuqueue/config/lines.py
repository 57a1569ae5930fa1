"""Where each key of a TOML text stands. `tomllib` does not say, and an error must.

Only for text that `tomllib` has accepted: nothing is validated here.
"""

import re
import tomllib
from collections.abc import Callable

Path = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)+")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_LITERAL = re.compile(r"[^\s,\]}#]+(?: \d[^\s,\]}#]*)?")  # a date and its time may have a blank between them
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"""+|\'\'\'.*?\'\'\'+|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'',
    re.DOTALL,
)


def key_lines(text: str) -> dict[Path, int]:
    """The line, counted from 1, on which each key and table first appears, by its full path. The tables of
    an array count from 0: `[[a]]` twice gives ("a", 0) and ("a", 1)."""
    scan = _Scan(text)
    scan.document()
    return scan.lines


class _Scan:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[Path, int] = {}
        self.tables_in: dict[Path, int] = {}  # array of tables -> how many so far

    def document(self) -> None:
        table: Path = ()
        while self.skip_blank():
            if self.text[self.at] == "[":
                table = self.header()
            else:
                self.key_value(table)

    def header(self) -> Path:
        array = self.text.startswith("[[", self.at)
        start = self.at
        self.at += 2 if array else 1
        path = self.resolve(self.key())
        self.at = self.text.index("]", self.at) + (2 if array else 1)
        if array:
            number = self.tables_in.get(path, 0)
            self.tables_in[path] = number + 1
            self.note(path, start)
            path = (*path, number)
        self.note(path, start)
        return path

    def resolve(self, key: Path) -> Path:
        """A header under an array of tables means the newest of them."""
        path: Path = ()
        for depth, part in enumerate(key):
            path = (*path, part)
            if path in self.tables_in and depth < len(key) - 1:
                path = (*path, self.tables_in[path] - 1)
        return path

    def key_value(self, table: Path) -> None:
        start = self.at
        key = self.key()
        path = (*table, *key)
        self.note(path, start)
        self.at = self.text.index("=", self.at) + 1
        self.value(path)

    def key(self) -> Path:
        parts: list[str] = []
        while True:
            self.skip_blank()
            if match := _STRING.match(self.text, self.at):
                parts.append(_unquoted(match[0]))
            else:
                match = _BARE_KEY.match(self.text, self.at)
                assert match is not None, "tomllib accepted a key that is none"
                parts.append(match[0])
            self.at = match.end()
            self.skip_blank()
            if not self.text.startswith(".", self.at):
                return tuple(parts)
            self.at += 1

    def value(self, path: Path) -> None:
        self.skip_blank()
        opened = self.text[self.at]
        if opened == "{":
            self.sequence("}", lambda _: self.key_value(path))
        elif opened == "[":
            self.sequence("]", lambda number: self.value((*path, number)))
        else:
            match = _STRING.match(self.text, self.at) or _LITERAL.match(self.text, self.at)
            assert match is not None, "tomllib accepted a value that is none"
            self.at = match.end()

    def sequence(self, close: str, item: Callable[[int], None]) -> None:
        self.at += 1
        number = 0
        while self.skip_blank() and self.text[self.at] != close:
            if self.text[self.at] == ",":
                self.at += 1
                continue
            item(number)
            number += 1
        self.at += 1

    def skip_blank(self) -> bool:
        """Past blanks and comments; False at the end of the text."""
        if match := _BLANK.match(self.text, self.at):
            self.at = match.end()
        return self.at < len(self.text)

    def note(self, path: Path, start: int) -> None:
        """The line of `path`, and of every table that it makes in passing."""
        line = self.text.count("\n", 0, start) + 1
        for length in range(1, len(path) + 1):
            self.lines.setdefault(path[:length], line)


def _unquoted(text: str) -> str:
    return str(tomllib.loads(f"key = {text}")["key"])
