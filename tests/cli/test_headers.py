import pytest

from gpuqueue.wire.errors import GpuqueueError
from gq.headers import header_lines


def words(text: str) -> list[tuple[int, list[str]]]:
    return [(line.number, line.words) for line in header_lines(text, "train.sh")]


def test_header_lines_are_read_with_their_line_numbers() -> None:
    assert words("#!/bin/bash\n#GQ --vram 22G\n#GQ --time 8h --light\n") == [
        (2, ["--vram", "22G"]),
        (3, ["--time", "8h", "--light"]),
    ]


def test_comments_and_blank_lines_between_them_are_passed_over() -> None:
    assert words("#!/bin/sh\n\n# about this run\n  \n#GQ --vram 1G\n") == [(5, ["--vram", "1G"])]


def test_lines_after_the_first_command_are_not_options() -> None:
    assert words("#!/bin/sh\necho hi\n#GQ --vram 1G\n") == []


def test_quotes_and_trailing_comments_mean_what_they_mean_in_a_shell() -> None:
    assert words("#GQ --name 'my run'  # with a # comment\n") == [(1, ["--name", "my run"])]


@pytest.mark.parametrize("line", ["#GQUEUE --vram 1G", "# GQ --vram 1G", "#gq --vram 1G", "#GQ"])
def test_only_the_exact_mark_counts(line: str) -> None:
    assert [words for _, words in words(line + "\n") if words] == []


def test_an_open_quote_is_an_error_that_names_file_and_line() -> None:
    with pytest.raises(GpuqueueError, match=r"train\.sh, line 2: .*quotation"):
        header_lines("#!/bin/sh\n#GQ --name 'my run\n", "train.sh")


def test_windows_line_ends_do_not_reach_the_options() -> None:
    assert words("#GQ --vram 1G\r\n") == [(1, ["--vram", "1G"])]
