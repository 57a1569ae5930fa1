"""What the daemon writes to standard error, for systemd's journal and for everybody else."""

import os
import re
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import logging
from gpuqueue.daemon import journal
journal.set_up(verbose=False)
log = logging.getLogger("gpuqueue.engine.engine")
log.info("ready")
try:
    1 / 0
except ZeroDivisionError:
    log.exception("tick failed")
"""


def written(directory: Path, *, to_the_journal: bool, command: tuple[str, ...] = ("-c", PROGRAM)) -> list[str]:
    """The lines, where a file stands for the stream that systemd opens."""
    stream = directory / "stream"
    with stream.open("wb") as file:
        status = os.fstat(file.fileno())
        named = f"{status.st_dev}:{status.st_ino}" if to_the_journal else "1:1"  # another's, inherited
        subprocess.run([sys.executable, *command], stderr=file, env={**os.environ, "JOURNAL_STREAM": named})
    return stream.read_text().splitlines()


def test_the_journal_gets_a_priority_before_every_line_and_no_time(tmp_path: Path) -> None:
    lines = written(tmp_path, to_the_journal=True)
    assert lines[:3] == ["<6>ready", "<3>tick failed", "<3>Traceback (most recent call last):"]
    assert lines[-1] == "<3>ZeroDivisionError: division by zero"


def test_elsewhere_a_line_says_when_and_how_grave(tmp_path: Path) -> None:
    lines = written(tmp_path, to_the_journal=False)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} INFO ready", lines[0])
    assert lines[-1] == "ZeroDivisionError: division by zero"


def test_why_it_does_not_start_is_an_error_in_the_journal(tmp_path: Path) -> None:
    command = ("-m", "gpuqueue.daemon", "serve", "--config", str(tmp_path / "missing.toml"))
    lines = written(tmp_path, to_the_journal=True, command=command)
    assert lines
    assert all(line.startswith("<3>") for line in lines)
    assert "missing.toml" in lines[0]
