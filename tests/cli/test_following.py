"""`gq logs`, `gq wait` and attached runs: the job's output byte for byte, and its own exit status."""

import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gpuqueue.wire.jobs import JobView, Submitted
from gpuqueue.wire.states import JobState
from tests.cli import views
from tests.cli.canned import Answer, Asked, CannedDaemon, Respond, ok, problem
from tests.cli.running import Gq

Serve = Callable[[Respond], CannedDaemon]


class Job:
    """A job of a canned daemon: each look at its state moves it one step on; an attempt's log is there once
    the attempt is."""

    def __init__(self, steps: list[JobView], logs: dict[int, bytes]) -> None:
        self.steps, self.logs = steps, logs

    def __call__(self, asked: Asked) -> Answer:
        if asked.path.endswith("/log"):
            return self._log(asked)
        if asked.method == "POST":
            return ok(Submitted(job=self.steps[0], notes=[]), 201)
        view = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        return ok(view if asked.path.endswith(("/wait", "/why")) else views.detail(view))

    def _log(self, asked: Asked) -> Answer:
        attempt = int(asked.query.get("attempt", max(self.logs)))
        text, offset, limit = self.logs[attempt], int(asked.query["offset"]), int(asked.query["limit"])
        start = max(len(text) + offset, 0) if offset < 0 else offset
        data = text[start : start + limit]
        end = start + len(data)
        headers = {
            "GQ-Offset": str(start),
            "GQ-Next-Offset": str(end),
            "GQ-Size": str(len(text)),
            "GQ-Attempt": str(attempt),
            "GQ-Ended": str(int(end >= len(text))),
        }
        return Answer(200, data, "application/octet-stream", headers)


def ended(state: JobState = JobState.FAILED, **changes: Any) -> JobView:
    return views.ended(12, state=state, **changes)


@pytest.mark.parametrize(
    ("view", "status"),
    [
        (ended(JobState.SUCCEEDED, wait_status=0), 0),
        (ended(wait_status=7), 7),
        (ended(wait_status=128 + signal.SIGKILL), 137),
        (ended(JobState.CANCELLED, wait_status=124), 124),
        (ended(JobState.STOPPED, wait_status=124), 124),
        (ended(wait_status=None), 125),
    ],
)
def test_wait_exits_as_the_job_did(serve: Serve, gq: Gq, view: JobView, status: int) -> None:
    serve(Job([views.job(), views.job(), view], {}))
    assert gq("wait", "12").status == status


def test_wait_for_several_exits_with_the_first_that_is_not_0_in_the_order_given(serve: Serve, gq: Gq) -> None:
    by_id = {"1": 0, "2": 5, "3": 6}

    def respond(asked: Asked) -> Answer:
        number = asked.path.split("/")[3]
        view = views.ended(int(number), wait_status=by_id[number])
        return ok(view if asked.path.endswith("/wait") else views.detail(view))

    serve(respond)
    assert gq("wait", "1", "2", "3").status == 5
    assert gq("wait", "1").status == 0


def test_waits_own_trouble_is_never_taken_for_the_jobs(serve: Serve, gq: Gq) -> None:
    assert gq("wait", "12").status == 125
    serve(lambda _: problem(404, "not_found", "there is no job 12"))
    ran = gq("wait", "12")
    assert (ran.status, ran.out, ran.err) == (125, "", "gq: there is no job 12\n")


def test_logs_are_the_jobs_bytes(serve: Serve, gq: Gq) -> None:
    serve(Job([views.job()], {1: "épôque 1\r1 %\nend without newline".encode()}))
    assert gq("logs", "12").out == "épôque 1\r1 %\nend without newline".replace("\r", "\n")


@pytest.mark.parametrize(("lines", "out"), [(1, "c\n"), (2, "b\nc\n"), (9, "a\nb\nc\n"), (0, "")])
def test_logs_can_be_cut_to_the_last_lines(serve: Serve, gq: Gq, lines: int, out: str) -> None:
    serve(Job([views.job()], {1: b"a\nb\nc\n"}))
    assert gq("logs", "-n", str(lines), "12").out == out


def test_the_last_lines_are_found_however_long_they_are(serve: Serve, gq: Gq) -> None:
    text = b"first\n" + b"x" * 200_000 + b"\nlast\n"
    serve(Job([views.job()], {1: text}))
    assert gq("logs", "-n", "2", "12").out == "x" * 200_000 + "\nlast\n"


def test_logs_larger_than_one_answer_come_whole(serve: Serve, gq: Gq) -> None:
    text = b"0123456789" * 300_000
    serve(Job([views.job()], {1: text}))
    assert gq("logs", "12").out.encode() == text


def test_logs_f_goes_over_all_attempts_and_says_why_it_waits(serve: Serve, gq: Gq) -> None:
    back_off = views.job(state=JobState.BACKOFF, reason="next try in 10s", reason_code="backoff", cards=[])
    later = replace(back_off, reason="next try in 9s")
    steps = [views.job(), back_off, later, views.job(attempt=2), ended(attempt=2)]
    serve(Job(steps, {1: b"one\n", 2: b"two\n"}))
    ran = gq("logs", "-f", "12")
    assert (ran.status, ran.out) == (0, "one\ntwo\n")
    assert ran.err.count("next try in") == 1
    assert ran.err.endswith("job 12 failed: exited with status 7\n")


def test_logs_f_of_a_job_that_has_not_started_waits_for_it(serve: Serve, gq: Gq) -> None:
    steps = [views.waiting(12), views.waiting(12), views.job(), ended(JobState.SUCCEEDED, wait_status=0)]
    serve(Job(steps, {1: b"one\n"}))
    ran = gq("logs", "-f", "12")
    assert ran.out == "one\n"
    assert "is free: job 12" in ran.err


def test_a_job_that_never_ran_ends_logs_f(serve: Serve, gq: Gq) -> None:
    never = replace(ended(JobState.CANCELLED), attempt=0, reason="cancelled by ann")
    serve(Job([views.waiting(12), never], {}))
    ran = gq("logs", "-f", "12")
    assert (ran.status, ran.out) == (0, "")
    assert "cancelled by ann" in ran.err


def test_an_attached_run_shows_the_log_and_exits_as_the_job(serve: Serve, gq: Gq) -> None:
    serve(Job([views.waiting(12), views.job(), ended(wait_status=7)], {1: b"training\n"}))
    ran = gq("submit", "-a", "--vram", "1G", "--", "true")
    assert (ran.status, ran.out) == (7, "training\n")
    assert "job 12 submitted" in ran.err


def test_an_attached_runs_refusal_is_not_the_jobs_status(serve: Serve, gq: Gq) -> None:
    serve(lambda _: problem(409, "refused", "too large"))
    assert gq("submit", "-a", "--vram", "1G", "--", "true").status == 125


@pytest.mark.parametrize("words", [("logs", "-f", "12"), ("submit", "-a", "--vram", "1G", "--", "true")])
def test_an_interrupt_says_that_the_job_goes_on(serve: Serve, gq: Gq, words: tuple[str, ...]) -> None:
    serve(Job([views.waiting(12)], {}))
    process = gq.start(*words)
    try:
        assert process.stderr is not None
        while "queued" not in process.stderr.readline():
            pass  # it is following now
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert "job 12 goes on" in err
    assert "Traceback" not in err
