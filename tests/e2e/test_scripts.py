"""What runs a submitted script: its first line, else its name, else a shell."""

import stat
from collections.abc import Callable

import pytest

from tests.e2e.node import Node

pytestmark = pytest.mark.e2e


@pytest.fixture
def ran(node: Node) -> Callable[[str, str], str]:
    """Submits a script with that name and text, and answers with its log."""

    def run(name: str, text: str) -> str:
        path = node.work / name
        path.write_text(text)
        path.chmod(path.stat().st_mode & ~stat.S_IXUSR)  # like sbatch, gq does not ask for the x bit
        job_id = node.submit("--vram", "0", "--restart", "never", name, "one", "two words")
        assert node.wait(job_id) == 0, node.logs(job_id)
        return node.logs(job_id)

    return run


def test_the_first_line_decides(ran: Callable[[str, str], str]) -> None:
    assert ran("job", "#!/usr/bin/env -S awk -f\nBEGIN { print ARGV[1], ARGV[2] }\n") == "one two words\n"


def test_a_python_script_without_one_is_run_by_python_and_finds_its_neighbours(
    node: Node, ran: Callable[[str, str], str]
) -> None:
    (node.work / "beside.py").write_text("WORD = 'found'\n")
    text = "#GQ --name mine\nimport sys, beside\nprint(beside.WORD, sys.argv[1:])\n"
    assert ran("train.py", text) == "found ['one', 'two words']\n"


def test_anything_else_is_run_by_a_shell(ran: Callable[[str, str], str]) -> None:
    assert ran("train", 'echo "$2"\n') == "two words\n"
