"""The house's import rule holds, and lint-imports notices when it does not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
LINT = Path(sys.executable).with_name("lint-imports")

VIOLATIONS = {
    "core looks up": ("gpuqueue/core/model.py", "import gpuqueue.engine.ports", "Imports point down"),
    "siblings meet": ("gpuqueue/gpu/planted.py", "import gpuqueue.store", "Imports point down"),
    "bottom siblings meet": ("gpuqueue/wire/states.py", "import gpuqueue.estimate", "Imports point down"),
    "the engine reaches an adapter": ("gpuqueue/engine/planted.py", "import gpuqueue.backends", "Imports point"),
    "shim grows": ("gpuqueue/shim/planted.py", "import gpuqueue.core.model", "The shim sees"),
    "gq grows": ("cli/gq/planted.py", "import gpuqueue.core.model", "gq sees"),
    "a job's monitor is imported": ("gpuqueue/engine/planted.py", "import gpuqueue.shim", "stands outside"),
    "SQL leaks": ("gpuqueue/engine/planted.py", "import sqlmodel", "SQL stays"),
    "the driver leaks": ("gpuqueue/engine/planted.py", "import pynvml", "The driver is read"),
    "a package without a place": ("gpuqueue/planted/__init__.py", "", "Imports point down"),
}


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(tree), str(tree / "cli")])
    return subprocess.run(
        [LINT, "--no-cache"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the sources that may be spoilt."""
    for name in ("gpuqueue", "cli"):
        shutil.copytree(TOP / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(TOP / ".importlinter", tmp_path)
    return tmp_path


def test_the_house_as_it_stands_keeps_the_rule() -> None:
    found = lint(TOP)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("violation", VIOLATIONS)
def test_a_planted_violation_is_found(tree: Path, violation: str) -> None:
    file, line, contract = VIOLATIONS[violation]
    spoilt = tree / file
    spoilt.parent.mkdir(exist_ok=True)
    text = spoilt.read_text() if spoilt.exists() else ""
    spoilt.write_text(f"{text}\n{line}\n")
    found = lint(tree)
    assert found.returncode == 1, found.stdout + found.stderr
    broken = [shown for shown in found.stdout.splitlines() if shown.endswith("BROKEN")]
    assert [contract in shown for shown in broken] == [True], found.stdout
