"""What each room may weigh: the pure rooms and the shim need the standard library alone, gq only click beside
it, and no `__init__.py` holds anything."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
STDLIB_ONLY = ("core", "wire", "checkpoints", "estimate", "diagnose", "shim", "hook")
IMPURE = {"time", "datetime", "random", "secrets", "logging", "os", "pathlib", "subprocess", "socket", "threading"}


def imported(folder: Path) -> Iterator[tuple[Path, str]]:
    """(file, top-level module) of every import statement, the lazy ones inside functions included."""
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                yield from ((file, alias.name.partition(".")[0]) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                yield file, (node.module or "").partition(".")[0]


@pytest.mark.parametrize("room", STDLIB_ONLY)
def test_a_bottom_room_needs_the_standard_library_only(room: str) -> None:
    allowed = sys.stdlib_module_names | {"gpuqueue"}
    assert [(str(file), name) for file, name in imported(TOP / "gpuqueue" / room) if name not in allowed] == []


def test_gq_needs_click_and_nothing_heavier() -> None:
    allowed = sys.stdlib_module_names | {"gpuqueue", "gq", "click"}
    assert [(str(file), name) for file, name in imported(TOP / "cli" / "gq") if name not in allowed] == []


def test_core_has_no_clock_no_files_and_no_dice() -> None:
    assert [(str(file), name) for file, name in imported(TOP / "gpuqueue" / "core") if name in IMPURE] == []


def test_core_compares_whole_numbers_only() -> None:
    """Integers only: no float literal, no true division, no `float` anywhere in core."""
    found = []
    for file in sorted((TOP / "gpuqueue" / "core").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            literal = isinstance(node, ast.Constant) and isinstance(node.value, float)
            division = isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div)
            named = isinstance(node, ast.Name) and node.id == "float"
            if literal or division or named:
                found.append((file.name, ast.unparse(node)))
    assert found == [("readings.py", "float"), ("readings.py", "float")]  # unix times of the run directory's records


@pytest.mark.parametrize("package", ["gpuqueue", "cli/gq"])
def test_init_files_are_empty(package: str) -> None:
    assert [str(file) for file in (TOP / package).rglob("__init__.py") if file.read_text().strip()] == []
