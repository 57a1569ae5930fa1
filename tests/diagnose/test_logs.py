"""Log tails and their answers: `expected.csv` beside them says cause, and where it matters retry and phase.

`logs_blind` holds tails written by people who had not seen the rules.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuqueue.diagnose.diagnose import diagnose
from gpuqueue.diagnose.finding import Cause, Confidence, Evidence, Finding

HERE = Path(__file__).parent
DIRECTORIES = [HERE / "logs", HERE / "logs_blind"]


@dataclass(frozen=True)
class Case:
    path: Path
    exit_status: int | None
    cause: Cause
    retry: str
    phase: str

    def finding(self, exit_status: int | None) -> Finding:
        text = self.path.read_bytes().decode("utf-8", errors="replace")
        return diagnose(Evidence(text, exit_status=exit_status))


def cases() -> list[Case]:
    found = []
    for directory in DIRECTORIES:
        table = directory / "expected.csv"
        if not table.exists():
            continue
        with table.open(newline="") as rows:
            for row in csv.DictReader(rows):
                status = int(row["exit_status"]) if row["exit_status"] else None
                case = Case(
                    directory / row["file"],
                    status,
                    Cause(row["cause"]),
                    row.get("retry") or "",
                    row.get("phase") or "",
                )
                found.append(case)
    return found


CASES = cases()
DEATHS = [case for case in CASES if case.cause is not Cause.none]
HEALTHY = [case for case in CASES if case.cause is Cause.none]


def name(case: Case) -> str:
    return f"{case.path.parent.name}/{case.path.stem}"


@pytest.mark.parametrize("case", DEATHS, ids=name)
def test_a_death_gets_its_cause_retry_and_phase(case: Case) -> None:
    finding = case.finding(case.exit_status)
    assert finding.cause is case.cause, finding
    assert finding.evidence and finding.advice
    assert "?" not in finding.advice, "a number was to stand there"
    if case.retry:
        assert finding.retry == case.retry
    if case.phase:
        assert finding.phase == case.phase


@pytest.mark.parametrize("case", [case for case in DEATHS if case.exit_status not in (124, None)], ids=name)
def test_the_log_alone_says_the_same(case: Case) -> None:
    assert case.finding(None).cause is case.cause


@pytest.mark.parametrize("case", HEALTHY, ids=name)
def test_a_healthy_or_unrelated_log_gets_no_confident_answer(case: Case) -> None:
    finding = case.finding(case.exit_status)
    assert finding.cause is Cause.none or finding.confidence is Confidence.low, finding


def test_the_collection_is_as_large_as_promised_and_covers_every_cause() -> None:
    assert len(DEATHS) >= 60
    assert len(HEALTHY) >= 20
    assert {case.cause for case in CASES} == set(Cause)


def test_every_log_file_has_its_row() -> None:
    for directory in DIRECTORIES:
        files = set(directory.glob("*.log"))
        assert files == {case.path for case in CASES if case.path.parent == directory}
