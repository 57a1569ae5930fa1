"""Any text at all gets an answer, the same each time; text that says nothing gets none."""

import subprocess
import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuqueue.diagnose.clue import Strength
from gpuqueue.diagnose.diagnose import _TABLE, ORDER, diagnose
from gpuqueue.diagnose.finding import Cause, Confidence, Evidence
from tests.diagnose.test_logs import CASES

LINES = sorted({line for case in CASES for line in case.path.read_text(errors="replace").split("\n")})
MIBS = st.integers(-1, 2**40)

evidences = st.builds(
    Evidence,
    log_tail=st.one_of(st.text(), st.lists(st.one_of(st.sampled_from(LINES), st.text()), max_size=30).map("\n".join)),
    exit_status=st.one_of(st.none(), st.integers(-300, 300)),
    signal=st.one_of(st.none(), st.integers(-70, 70)),
    stop_reason=st.one_of(st.none(), st.text()),
    curve=st.lists(st.tuples(MIBS, MIBS), max_size=30).map(tuple),
    claim_mib=st.one_of(st.none(), MIBS),
    cap_mib=st.one_of(st.none(), MIBS),
    neighbours=st.lists(st.tuples(st.integers(), st.text(max_size=3), MIBS), max_size=3).map(tuple),
    own_pids=st.frozensets(st.integers(), max_size=3),
    kernel_lines=st.lists(st.one_of(st.text(), st.sampled_from(LINES)), max_size=4).map(tuple),
    host_mem_total_mib=st.one_of(st.none(), MIBS),
)


@given(evidences)
@settings(max_examples=300)
def test_every_evidence_gets_one_answer(evidence: Evidence) -> None:
    finding = diagnose(evidence)
    assert finding == diagnose(evidence)
    assert finding.as_dict()["cause"] in set(Cause)


@given(st.text(alphabet=st.characters(exclude_categories=("Lu", "Ll", "Cs"))))
@settings(max_examples=200)
def test_text_that_says_nothing_gets_none_with_low_confidence(text: str) -> None:
    finding = diagnose(Evidence(text))
    assert (finding.cause, finding.confidence) == (Cause.none, Confidence.low)


def test_the_order_of_precedence_is_total_and_without_repetition() -> None:
    assert len(ORDER) == len(set(ORDER))
    assert {(row.cause, row.strength) for row in _TABLE if row.strength is not Strength.hint} <= set(ORDER)


def test_advice_names_only_what_its_pattern_reads() -> None:
    for row in _TABLE:
        named = {part.split("}")[0] for part in row.advice.split("{")[1:]}
        assert named <= set(row.pattern.groupindex), row.pattern.pattern


def test_nothing_but_the_standard_library_is_imported() -> None:
    program = (
        "import sys, gpuqueue.diagnose.diagnose;"
        "print([m for m in sys.modules if m.split('.')[0] not in sys.stdlib_module_names"
        " and not m.startswith(('gpuqueue', '__', '_', 'sitecustomize'))])"
    )
    shown = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
