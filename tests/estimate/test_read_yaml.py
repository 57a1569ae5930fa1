"""The YAML that configuration files use is read; the rest is refused with the line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuqueue.estimate.read_yaml import YamlError, parse

KEYS = st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True)
WORDS = st.from_regex(r"[a-z][a-zA-Z0-9_./]{0,12}", fullmatch=True).filter(
    lambda text: text.lower() not in ("true", "false", "yes", "no", "on", "off", "null", "inf", "nan", "infinity")
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), WORDS)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, min_size=1, max_size=3) | st.dictionaries(KEYS, inner, min_size=1, max_size=3),
    max_leaves=8,
)


def written(value: object, indent: int = 0) -> str:
    """Block style, two blanks a level, as people write it."""
    pad = " " * indent
    if isinstance(value, dict):
        return "".join(f"{pad}{key}:{below(each, indent)}" for key, each in value.items())
    if isinstance(value, list):
        return "".join(f"{pad}-{below(each, indent)}" for each in value)
    return f"{pad}{scalar(value)}\n"


def below(value: object, indent: int) -> str:
    if isinstance(value, dict | list):
        return "\n" + written(value, indent + 2)
    return f" {scalar(value)}\n"


def scalar(value: object) -> str:
    return {None: "null", True: "true", False: "false"}.get(value, str(value))  # type: ignore[call-overload,no-any-return]


@given(st.dictionaries(KEYS, TREES, min_size=1, max_size=4))
def test_what_is_written_in_block_style_is_read_back(document: dict[str, object]) -> None:
    assert parse(written(document)) == document


def test_the_forms_of_real_files() -> None:
    text = """
---
# a comment
name: "a # b"        # another
url: http://host:80/x
rate: 2.0e-4
off: no
empty:
list:
- one
- 'it''s'
items:
  - path: a.jsonl
    type: chat
    fields: [x, "y, z", {role: from}]
  - path: b
template: |
  {{ a: b }}  # kept

  end
folded: >-
  two
  lines
mapping: {zero: 2, on: true}
long: [1,
  2, 3]
after: done
"""
    assert parse(text) == {
        "name": "a # b",
        "url": "http://host:80/x",
        "rate": 2e-4,
        "off": False,
        "empty": None,
        "list": ["one", "it's"],
        "items": [{"path": "a.jsonl", "type": "chat", "fields": ["x", "y, z", {"role": "from"}]}, {"path": "b"}],
        "template": "{{ a: b }}  # kept\n\nend",
        "folded": "two\nlines",
        "mapping": {"zero": 2, "on": True},
        "long": [1, 2, 3],
        "after": "done",
    }


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a: 1\nb: &anchor 2\n", 2, "anchors"),
        ("a: 1\nb: *anchor\n", 2, "anchors"),
        ("a: !!python/object:os.system x\n", 1, "tags"),
        ("a: 1\n\tb: 2\n", 2, "tab"),
        ("a: 1\nb 2\n", 2, "key: value"),
        ("a: 1\n   b: 2\n", 2, "indentation"),
        ("a: [1, 2\n", 1, "not closed"),
        ('a: "open\n', 1, "not closed"),
        ("a: 1\na: 2\n", 2, "second time"),
        ("a:\n  - " + "[" * 40 + "]" * 40, 2, "nested too deeply"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_line(text: str, line: int, says: str) -> None:
    with pytest.raises(YamlError, match=rf"line {line}: .*{says}"):
        parse(text)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse(text)
    except YamlError as error:
        assert str(error).startswith("line ")
