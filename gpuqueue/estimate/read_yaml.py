"""Reads the YAML that configuration files are made of: mappings, lists, scalars, comments, block text.

Anchors, aliases, tags and several documents are refused with the line, rather than read wrong.
"""

from typing import Any

TRUE = ("true", "yes", "on")
FALSE = ("false", "no", "off")
DEEPEST = 30  # brackets in one another; each level is read again
NULL = ("", "null", "~")


class YamlError(ValueError):
    """A line that this reader does not understand. The text names the line."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(f"line {line}: {what}")


class _Lines:
    """The lines that matter, as (number, indent, text), and where the reader is."""

    def __init__(self, text: str) -> None:
        self.raw = text.splitlines()
        self.lines: list[tuple[int, int, str]] = []
        self.at = 0
        for number, line in enumerate(self.raw, start=1):
            bare = _without_comment(line)
            if bare.strip() and bare.strip() != "---":
                if "\t" in bare[: len(bare) - len(bare.lstrip())]:
                    raise YamlError(number, "indented with a tab")
                self.lines.append((number, len(bare) - len(bare.lstrip(" ")), bare.strip()))

    def peek(self) -> tuple[int, int, str] | None:
        return self.lines[self.at] if self.at < len(self.lines) else None


def parse(text: str) -> Any:
    """The document as dicts, lists and scalars; None where it is empty. Raises YamlError."""
    lines = _Lines(text)
    first = lines.peek()
    if first is None:
        return None
    value = _block(lines, first[1])
    left = lines.peek()
    if left is not None:
        raise YamlError(left[0], f"unexpected indentation before {left[2]!r}")
    return value


def _without_comment(line: str) -> str:
    quote = ""
    for place, char in enumerate(line):
        if quote:
            if char == quote:
                quote = ""
        elif char in "'\"" and (place == 0 or line[place - 1] in " [{,:-"):
            quote = char
        elif char == "#" and (place == 0 or line[place - 1] in " \t"):
            return line[:place].rstrip()
    return line.rstrip()


def _block(lines: _Lines, indent: int) -> Any:
    number, _, text = lines.lines[lines.at]
    if text == "-" or text.startswith("- "):
        return _list(lines, indent)
    if _key_end(text) is None:
        lines.at += 1
        return _scalar(text, number)
    return _mapping(lines, indent)


def _list(lines: _Lines, indent: int) -> list[Any]:
    found: list[Any] = []
    while (line := lines.peek()) and line[1] == indent and (line[2] == "-" or line[2].startswith("- ")):
        number, _, text = line
        rest = text[1:].strip()
        if not rest:
            lines.at += 1
            deeper = lines.peek()
            found.append(_block(lines, deeper[1]) if deeper and deeper[1] > indent else None)
        elif _key_end(rest) is not None and rest[0] not in "[{'\"":
            inner = indent + len(text) - len(text[1:].lstrip())
            lines.lines[lines.at] = (number, inner, rest)
            found.append(_mapping(lines, inner))
        else:
            lines.at += 1
            found.append(_value(lines, rest, number, indent))
    return found


def _mapping(lines: _Lines, indent: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while (line := lines.peek()) and line[1] == indent:
        number, _, text = line
        end = _key_end(text)
        if end is None:
            if text.startswith("- "):
                break
            raise YamlError(number, f"expected `key: value`, got {text!r}")
        key = text[:end].strip().strip("'\"")
        if key in found:
            raise YamlError(number, f"{key} stands here a second time")
        rest = text[end + 1 :].strip()
        lines.at += 1
        found[key] = _value(lines, rest, number, indent) if rest else _nested(lines, indent)
    return found


def _nested(lines: _Lines, indent: int) -> Any:
    deeper = lines.peek()
    if deeper and (deeper[1] > indent or (deeper[1] == indent and deeper[2].startswith("-"))):
        return _block(lines, deeper[1])
    return None


def _value(lines: _Lines, text: str, number: int, indent: int) -> Any:
    if text[0] in "|>" and text.strip("|>+-0123456789") == "":
        return _block_text(lines, number, indent)
    if text[0] in "&*!":
        raise YamlError(number, f"anchors, aliases and tags are not read: {text!r}")
    if text[0] in "[{":
        text = _bracket(lines, text, number)
    return _scalar(text, number)


def _bracket(lines: _Lines, text: str, number: int) -> str:
    """An inline list or mapping on one line, those that it goes on over included."""
    opening, closing = text[0], {"[": "]", "{": "}"}[text[0]]
    found, depth = [text], text.count(opening) - text.count(closing)
    while depth > 0:
        more = lines.peek()
        if more is None:
            raise YamlError(number, "a bracket is not closed")
        found.append(more[2])
        depth += more[2].count(opening) - more[2].count(closing)
        lines.at += 1
    return " ".join(found)


def _block_text(lines: _Lines, number: int, indent: int) -> str:
    kept = []
    for at in range(number, len(lines.raw)):
        line = lines.raw[at]
        if line.strip() and len(line) - len(line.lstrip(" ")) <= indent:
            break
        kept.append(line.strip())
    while (line_at := lines.peek()) and line_at[0] <= number + len(kept):
        lines.at += 1
    return "\n".join(kept)


def _key_end(text: str) -> int | None:
    """Where the colon after a key stands; None where the text is no `key: value`."""
    start = 0
    if text[0] in "'\"":
        start = text.find(text[0], 1) + 1
    elif text[0] in "[{":
        return None
    at = text.find(":", start)
    while at != -1 and at + 1 < len(text) and text[at + 1] != " ":
        at = text.find(":", at + 1)
    return None if at == -1 else at


def _scalar(text: str, number: int) -> Any:
    text = text.strip()
    if text[:1] in "'\"" and text:
        if len(text) < 2 or text[-1] != text[0]:
            raise YamlError(number, f"a quote is not closed: {text!r}")
        return text[1:-1].replace("''", "'") if text[0] == "'" else text[1:-1].replace('\\"', '"')
    if text[:1] == "[":
        return [_scalar(part, number) for part in _parts(text, number)]
    if text[:1] == "{":
        pairs = (part.partition(":") for part in _parts(text, number))
        return {key.strip().strip("'\""): _scalar(value, number) for key, _, value in pairs}
    lowered = text.lower()
    if lowered in NULL:
        return None
    if lowered in TRUE or lowered in FALSE:
        return lowered in TRUE
    for kind in (int, float):
        try:
            return kind(text.replace("_", "") if text[:1].isdigit() else text)
        except ValueError:
            continue
    return text


def _parts(text: str, number: int) -> list[str]:
    """The items of an inline list or mapping, split at the commas that are not nested or quoted."""
    if text[-1] != {"[": "]", "{": "}"}[text[0]]:
        raise YamlError(number, f"a bracket is not closed: {text!r}")
    parts, depth, quote, current = [], 0, "", ""
    for char in text[1:-1]:
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in "[{":
            depth += 1
            if depth > DEEPEST:
                raise YamlError(number, "brackets are nested too deeply to be a configuration")
        elif char in "]}":
            depth -= 1
        if char == "," and depth == 0 and not quote:
            parts.append(current)
            current = ""
        else:
            current += char
    if current.strip():
        parts.append(current)
    return parts
