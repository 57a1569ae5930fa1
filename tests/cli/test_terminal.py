import pytest

from gq.terminal import Cell, Column, Screen, clip, columns_of, plain, table


def test_control_characters_of_other_people_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in plain("\x1b[2Jrun\n")
    assert plain("run") == "run"


@pytest.mark.parametrize(
    ("text", "columns"), [("run", 3), ("läuft", 5), ("訓練", 4), ("e\N{COMBINING ACUTE ACCENT}", 1)]
)
def test_a_terminal_gives_wide_characters_two_columns(text: str, columns: int) -> None:
    assert columns_of(text) == columns


@pytest.mark.parametrize("text", ["x" * 100, "訓練" * 40, "short", ""])
@pytest.mark.parametrize("width", [1, 2, 7, 20])
def test_clipped_text_never_exceeds_its_width_and_shows_that_it_was_cut(text: str, width: int) -> None:
    clipped = clip(text, width)
    assert columns_of(clipped) <= width
    assert clipped == text or clipped.endswith("…")


def test_a_table_narrows_its_widest_willing_column_first() -> None:
    columns = [Column("ID", right=True), Column("USER", least=6), Column("NAME", least=6)]
    head, row = table(columns, [["1", "ann", "n" * 100]], Screen(width=30))
    assert len(row) == 30
    assert row.startswith(" 1  ann")
    assert row.endswith("…")
    assert head.split() == ["ID", "USER", "NAME"]


def test_a_last_column_that_wraps_goes_on_below_itself() -> None:
    columns = [Column("ID", right=True), Column("WHAT", least=20, wraps=True)]
    assert table(columns, [["7", "word " * 9], ["8", "short"]], Screen(width=30)) == [
        "ID  WHAT",
        " 7  word word word word word",
        "    word word word word",
        " 8  short",
    ]


def test_colours_are_only_for_screens_that_have_them() -> None:
    rows = [[Cell("running", "green")]]
    assert "\x1b" not in "".join(table([Column("STATE")], rows, Screen(colours=False)))
    assert "\x1b[32mrunning\x1b[0m" in table([Column("STATE")], rows, Screen(colours=True))[1]


def test_colours_do_not_move_the_columns() -> None:
    columns = [Column("STATE"), Column("NAME")]
    rows: list[list[Cell | str]] = [[Cell("running", "green"), "a"], [Cell("queued", "yellow"), "b"]]
    bare = table(columns, rows, Screen(colours=False))
    painted = table(columns, rows, Screen(colours=True))
    for colour in ("\x1b[32m", "\x1b[33m", "\x1b[2m", "\x1b[0m"):
        painted = [line.replace(colour, "") for line in painted]
    assert painted == bare
