"""After a failed attempt: gather the evidence that diagnose reads, and keep its finding (rules R5, O2)."""

from dataclasses import dataclass

from gpuqueue.core.model import Attempt, Job
from gpuqueue.core.readings import Probe
from gpuqueue.engine.engine import Engine

TAIL_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Autopsy:
    """`cause` is None where nothing is known or where gpuqueue itself ended the attempt."""

    cause: str | None = None
    headline: str = ""
    advice: str = ""


def examine(engine: Engine, job: Job, attempt: Attempt, probe: Probe) -> Autopsy:
    return Autopsy()
