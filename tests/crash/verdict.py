"""What the jobs say of themselves against what gpuqueue says of them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.crash.errands import SAVED_BEFORE_THE_CRASH
from tests.crash.traffic import Accepted

CRASH_LIMIT = 4  # R3, as the default policy has it
TERMINATED, KILLED = 128 + 15, 128 + 9
NOT_RESUMED = "-"


@dataclass(slots=True)
class Told:
    """What one attempt said of itself. `code` is None where it was killed before it said how it ends."""

    starts: int = 0
    overlaps: int = 0
    started_ns: int = 0
    resumed_from: str = NOT_RESUMED
    code: int | None = None


def read_truth(file: Path) -> dict[int, Told]:
    """attempt -> what it said; empty where the job never ran."""
    attempts: dict[int, Told] = {}
    for line in file.read_text().splitlines() if file.exists() else []:
        what, _, attempt, *rest = line.split(" ")
        one = attempts.setdefault(int(attempt), Told())
        match what:
            case "start":
                one.starts += 1
                one.started_ns, one.resumed_from = int(rest[0]), rest[1]
            case "overlap":
                one.overlaps += 1
            case "end":
                one.code = int(rest[0])
    return attempts


def faults(
    job: Accepted, shown: Mapping[str, Any], truth: Mapping[int, Told], unwatched: frozenset[int]
) -> Iterator[str]:
    """Whatever must not be, a line each. `shown` is the detail of the job that gpuqueue answers after everything
    has ended, `unwatched` the attempts whose monitor was killed."""
    recorded = shown["attempts"]
    numbers = [attempt["number"] for attempt in recorded]
    if shown["job"]["name"] != job.errand.unique:
        yield f"is now {shown['job']['name']}"
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"its attempts are numbered {numbers}"
    if unknown := sorted(set(truth) - set(numbers)):
        yield f"ran as attempt {unknown}, of which gpuqueue knows nothing"
    if truth and shown["job"]["started_at"] is None:
        yield "ran, and is said never to have started"
    for attempt in recorded:
        number = attempt["number"]
        for fault in _of_attempt(job, attempt, truth.get(number), number in unwatched):
            yield f"attempt {number} {fault}"
    if job.requeue_asked and len(recorded) > 1 + job.asks:
        yield f"has {len(recorded)} attempts, and was requeued {job.asks} times"
    for before, after in pairwise(recorded):
        yield from _of_repeat(job, before, after["number"], truth)
    yield from _of_state(job, shown["job"], recorded)


def _of_attempt(job: Accepted, attempt: Mapping[str, Any], said: Told | None, unwatched: bool) -> Iterator[str]:
    code = attempt["exit_code"]
    if said is not None and said.starts != 1:
        yield f"ran {said.starts} times"
    if said is not None and said.overlaps:
        yield "ran while a process of an earlier one was left"
    if attempt["ended_at"] is None:
        yield "has not ended"
    elif code is None:
        never_launched = job.asks and said is None
        if not unwatched and not never_launched:
            yield f"has lost its status, though nobody killed its monitor: {attempt['outcome']!r}"
        elif "lost" not in attempt["outcome"] and not job.asks:
            yield f"has lost its status, and does not say so: {attempt['outcome']!r}"
    elif said is not None and said.code is not None:
        killed_in_between = job.asks and code == KILLED  # its grace was over after its last word, before its end
        if code != said.code and not killed_in_between:
            yield f"ended with {said.code}, and is said to have ended with {code}"
    elif not (job.asks and code in (TERMINATED, KILLED)):
        yield f"{'never ran' if said is None else 'did not end'} by itself, and is said to have ended with {code}"


def _of_repeat(job: Accepted, before: Mapping[str, Any], number: int, truth: Mapping[int, Told]) -> Iterator[str]:
    if not job.errand.restarts and not job.requeue_asked:
        yield f"attempt {number} was made of a job that must not run again"
    if before["exit_code"] == 0 and not job.requeue_asked:
        yield f"attempt {number} was made after success"
    if job.cancelled_in is not None and number > job.cancelled_in:
        yield f"attempt {number} was made after its cancel"
    earlier, later = truth.get(number - 1), truth.get(number)
    if earlier is None or later is None:
        return
    if earlier.started_ns > later.started_ns:
        yield f"attempt {number} ran before the one before it"
    saved = job.errand.kind == "resume" and earlier.code == SAVED_BEFORE_THE_CRASH
    if saved and later.resumed_from == NOT_RESUMED:
        yield f"attempt {number} does not resume"


def _of_state(job: Accepted, shown: Mapping[str, Any], recorded: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    state, code = shown["state"], shown["exit_code"]
    if recorded and code != recorded[-1]["exit_code"]:
        yield f"has exit code {code}, its last attempt {recorded[-1]['exit_code']}"
    if state == "cancelled":
        if not job.cancel_asked:
            yield "is cancelled, and nobody asked for it"
        return
    if not recorded:
        yield f"is {state} without ever having been tried"
        return
    expected = "succeeded" if code == 0 else "stopped" if job.errand.restarts else "failed"
    if state != expected:
        yield f"is {state} with exit code {code}, should be {expected}"
    elif state == "stopped" and len(recorded) < CRASH_LIMIT:
        yield f"was given up after {len(recorded)} attempts"


def tally(shown: Mapping[str, Any], truth: Mapping[int, Told]) -> Counter[str]:
    """What is printed in the end."""
    counts = Counter(["jobs", shown["job"]["state"]])
    for attempt in shown["attempts"]:
        said = truth.get(attempt["number"])
        counts["attempts"] += 1
        if said is None:
            counts["never ran"] += 1
        elif attempt["exit_code"] is None:
            counts["said to be lost"] += 1
        elif said.code in (None, attempt["exit_code"]) or attempt["exit_code"] == KILLED:
            counts["true"] += 1
        else:
            counts["false"] += 1
        if said is not None and (said.starts > 1 or said.overlaps):
            counts["run twice"] += 1
    return counts
