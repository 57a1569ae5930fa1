"""docs/cli.md names what there is: fields and verbs."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from gpuqueue.wire.jobs import (
    AttemptView,
    CalibrationView,
    CardView,
    CheckView,
    Diagnosis,
    Estimated,
    EventView,
    JobDetail,
    JobView,
    QuotaView,
    RunView,
    StrangerView,
    TenantView,
    TorchPeak,
)
from gpuqueue.wire.states import JobState
from gq.verbs import VERBS

PAGE = (Path(__file__).parents[2] / "docs/cli.md").read_text(encoding="utf-8")
CODE = set(re.findall(r"`([a-z_]+)`", PAGE))


@pytest.mark.parametrize(
    "view",
    [
        JobView,
        JobDetail,
        AttemptView,
        Diagnosis,
        Estimated,
        TorchPeak,
        RunView,
        CalibrationView,
        CardView,
        TenantView,
        StrangerView,
        QuotaView,
        EventView,
        CheckView,
    ],
)
def test_every_field_of_the_json_is_documented(view: type[Any]) -> None:
    fields = {"class" if f.name == "job_class" else f.name for f in dataclasses.fields(view)}
    assert fields - CODE == set()


def test_every_state_is_documented() -> None:
    assert {str(state) for state in JobState} - CODE == set()


def test_every_verb_is_documented() -> None:
    assert {verb for verb in VERBS if f"`gq {verb}" not in PAGE} == set()
