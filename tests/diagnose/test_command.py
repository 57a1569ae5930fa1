"""`gq diagnose` as a user runs it: a process of its own, no daemon."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOGS = Path(__file__).parent / "logs"
FIELDS = ["cause", "confidence", "evidence", "advice", "retry", "phase", "pids", "needed_mib", "held_mib"]


def run(*arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "gq", "diagnose", *arguments],
        input=given,
        capture_output=True,
        env={**os.environ, "COLUMNS": "80", "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'cli'}"},
        cwd=LOGS,
        check=False,
        timeout=60,
    )


def test_a_log_gets_cause_evidence_advice_and_retry() -> None:
    done = run("torch_2_2_neighbour_named.log")
    assert done.returncode == 0
    lines = done.stdout.decode().splitlines()
    assert lines[0] == "cause     neighbour (confidence high, during training)"
    labels = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert labels == ["cause", "evidence", "pids", "advice", "retry"]
    assert max(map(len, lines)) <= 80


def test_json_has_the_documented_fields() -> None:
    done = run("oom_killer.log", "--json", "--exit-status", "137")
    answer = json.loads(done.stdout)
    assert list(answer) == FIELDS
    assert answer["cause"] == "host_out_of_memory"
    assert answer["confidence"] == "high"
    assert answer["retry"] == "no"


def test_a_dash_reads_standard_input() -> None:
    done = run("-", "--json", given=b"RuntimeError: CUDA error: device-side assert triggered\n")
    assert json.loads(done.stdout)["cause"] == "assertion"


def test_the_end_of_a_huge_log_with_bytes_that_are_no_text_counts(tmp_path: Path) -> None:
    log = tmp_path / "huge.log"
    log.write_bytes(b"\xff\xfe\x00 step\n" * 600_000 + b"OSError: [Errno 28] No space left on device\n")
    assert json.loads(run(str(log), "--json").stdout)["cause"] == "disk_full"


@pytest.mark.parametrize("path", ["absent.log", ".", "a\nb"])
def test_a_path_that_cannot_be_read_is_one_line_and_status_2(path: str) -> None:
    done = run(path)
    assert done.returncode == 2
    assert done.stdout == b""
    assert b"Traceback" not in done.stderr
    assert b"standard input" in done.stderr.splitlines()[-1]


def test_wrong_options_are_status_2() -> None:
    assert run().returncode == 2
    assert run("oom_killer.log", "--exit-status", "many").returncode == 2
