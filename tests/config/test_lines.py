"""Where the keys of a TOML text stand."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuqueue.config.lines import key_lines

TEXT = '''\
# a comment with [brackets] and key = 1
top = 1
a.b . "c d" = 2   # dotted, quoted

[daemon]
state_dir = "/x"  # not [a] = header
list = [
  1, # one ]
  "two]",
  [3,
   4],
]
multi = """
fake = 1
[fake]
\\""\\" quotes \\\\"""
literal = \'\'\'
fake = 2
it\'s\'\'\'\'
after = true

[ quota . users . "ann.b" ]
train = "20G"
inline = { x = 1, "y z".w = [ { deep = 1 }, { deep = 2 } ] }
when = 1979-05-27 07:32:00Z
'single' = 'a#b = "c"'

[[card]]
name = "one"
[card.sub]
k = 1
[[card]]
name = "two"
[[card.port]]
n = 1
[[card.port]]
n = 2
  [quota]
  held_back = 1e3
'''


def line_of(text: str) -> int:
    [line] = [number for number, found in enumerate(TEXT.splitlines(), 1) if found.strip().startswith(text)]
    return line


@pytest.mark.parametrize(
    ("path", "starts_with"),
    [
        (("top",), "top"),
        (("a",), "a.b"),
        (("a", "b", "c d"), "a.b"),
        (("daemon",), "[daemon]"),
        (("daemon", "state_dir"), "state_dir"),
        (("daemon", "list"), "list"),
        (("daemon", "multi"), "multi"),
        (("daemon", "literal"), "literal"),
        (("daemon", "after"), "after"),
        (("quota", "users"), "[ quota"),
        (("quota", "users", "ann.b"), "[ quota"),
        (("quota", "users", "ann.b", "train"), "train"),
        (("quota", "users", "ann.b", "inline", "x"), "inline"),
        (("quota", "users", "ann.b", "inline", "y z", "w", 1, "deep"), "inline"),
        (("quota", "users", "ann.b", "when"), "when"),
        (("quota", "users", "ann.b", "single"), "'single'"),
        (("card", 0, "name"), 'name = "one"'),
        (("card", 0, "sub", "k"), "k = 1"),
        (("card", 1, "name"), 'name = "two"'),
        (("card", 1, "port", 1, "n"), "n = 2"),
        (("quota", "held_back"), "held_back"),
    ],
)
def test_a_key_is_found_on_its_line(path: tuple[str | int, ...], starts_with: str) -> None:
    assert key_lines(TEXT)[path] == line_of(starts_with)


def paths_in(value: Any, path: tuple[str | int, ...] = ()) -> set[tuple[str | int, ...]]:
    """Every key, and every table of an array, as tomllib has them."""
    found = {path} if path and (isinstance(path[-1], str) or isinstance(value, dict)) else set()
    if isinstance(value, dict):
        items: list[tuple[str | int, Any]] = list(value.items())
    else:
        items = list(enumerate(value)) if isinstance(value, list) else []
    return found.union(*(paths_in(inner, (*path, key)) for key, inner in items))


def test_nothing_is_missed_and_nothing_is_made_up() -> None:
    lines = key_lines(TEXT)
    named = {path for path in lines if isinstance(path[-1], str)}
    assert named == {path for path in paths_in(tomllib.loads(TEXT)) if isinstance(path[-1], str)}
    assert all(1 <= line <= len(TEXT.splitlines()) for line in lines.values())


@pytest.mark.parametrize("text", ["", "\n\n# nothing\n", "[a]", "a=1", "\t[a.b]# x", "a={}\r\nb=[]\r\n"])
def test_small_texts(text: str) -> None:
    assert set(key_lines(text)) == paths_in(tomllib.loads(text))


KEYS = st.text(st.sampled_from("ab_-9"), min_size=1, max_size=3)
STRINGS = st.text(st.sampled_from("ab \"'#=[]{},.\n\\"), max_size=8)


def as_toml(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"""\n{escaped}"""' if "\n" in text else f'"{escaped}"'


@given(st.dictionaries(KEYS, st.lists(STRINGS, max_size=3), max_size=6), st.lists(STRINGS, max_size=6))
def test_generated_texts_agree_with_tomllib(values: dict[str, list[str]], comments: list[str]) -> None:
    lines, expected = [], {}
    for number, (key, strings) in enumerate(values.items()):
        for comment in comments[number : number + 1]:
            lines += [f"# {part}" for part in comment.split("\n")]
        expected[(key,)] = sum(line.count("\n") + 1 for line in lines) + 1
        lines.append(f"{key} = [{', '.join(map(as_toml, strings))}]")
    text = "\n".join(lines)
    assert tomllib.loads(text) == values
    assert key_lines(text) == expected
