"""Single messages and their causes, bare and as launchers and loggers print them: `wordings.tsv`."""

from pathlib import Path

import pytest

from gpuqueue.diagnose.diagnose import diagnose
from gpuqueue.diagnose.finding import Cause, Evidence

PREFIXES = [
    "",
    "[rank0]: ",
    "2025-01-02 03:04:05,678 | ERROR | ",
    "(EngineCore_0 pid=71) ERROR 01-02 03:04:05 [core.py:515] ",
]


def rows() -> list[tuple[str, str]]:
    table = Path(__file__).with_name("wordings.tsv").read_text(encoding="utf-8")
    pairs = (line.split("\t", 1) for line in table.splitlines())
    return [(cause, text.replace("\\n", "\n")) for cause, text in pairs]


@pytest.mark.parametrize(("cause", "text"), rows())
def test_a_message_tells_its_cause_whatever_stands_before_it(cause: str, text: str) -> None:
    for prefix in PREFIXES:
        printed = "\n".join(prefix + line for line in text.split("\n"))
        finding = diagnose(Evidence(printed))
        assert finding.cause == cause, (prefix, finding)
    status = 0 if cause == Cause.none else 1
    assert diagnose(Evidence(text, exit_status=status)).cause == cause
