"""Jobs coming and going, asked for over the real socket while the daemon behind it dies again and again.

A request that the daemon did not answer is asked again with its idempotency key (J5), so every submit is accepted
in the end, and must have made one job.
"""

import json
import random
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gq.http import Broken, open_answer
from tests.crash.errands import Errand, errand

REQUEST_S = 20.0
PAUSE_S = 0.1
GIVE_UP_S = 120.0


class Away(Exception):
    """The daemon is not there, or went away before it had answered."""


@dataclass(slots=True)
class Accepted:
    """An errand that the daemon said it had taken. `due_at`: its owner's verb is due then; `asks`: how often that was
    asked, and may have been heard; `cancelled_in`: a cancel was accepted while the job was in this attempt."""

    errand: Errand
    job_id: int
    due_at: float | None = None
    asks: int = 0
    cancelled_in: int | None = None

    @property
    def cancel_asked(self) -> bool:
        return self.errand.verb == "cancel" and self.asks > 0

    @property
    def requeue_asked(self) -> bool:
        return self.errand.verb == "requeue" and self.asks > 0


def ask(path: Path, method: str, target: str, body: object = None) -> tuple[int, Any]:
    """(HTTP status, what was answered). Raises Away."""
    text = None if body is None else json.dumps(body).encode()
    try:
        with open_answer(str(path), method, target, text, REQUEST_S) as answer:
            return answer.status, json.loads(answer.read())
    except (OSError, Broken) as error:
        raise Away(str(error)) from error


class Traffic(threading.Thread):
    """One customer: keeps `jobs` of its own open until it is told to finish. `problems` are answers that no daemon
    should give."""

    def __init__(self, name: str, path: Path, directory: Path, dice: random.Random, jobs: int) -> None:
        super().__init__(name=name, daemon=True)
        self.accepted: list[Accepted] = []
        self.problems: list[str] = []
        self._path = path
        self._directory = directory
        self._dice = dice
        self._jobs = jobs
        self._asked: Errand | None = None
        self._answered = time.monotonic()
        self._no_more = threading.Event()

    def run(self) -> None:
        while not self._no_more.is_set() or self._asked is not None or self._due():
            try:
                self._step()
            except Away:
                if time.monotonic() > self._answered + GIVE_UP_S:
                    self.problems.append(f"nobody has answered for {GIVE_UP_S:.0f} s")
                    return
                time.sleep(PAUSE_S)
            except BaseException as error:
                self.problems.append(f"the traffic broke down: {error!r}")
                raise

    def finish(self) -> None:
        """No more jobs. The thread ends when what was asked is accepted and no verb is due any more."""
        self._no_more.set()

    def _step(self) -> None:
        for job in self._due():
            if time.monotonic() >= (job.due_at or 0):
                self._do(job)
        status, listed = self._ask("GET", "/v1/jobs")
        if status != 200:
            self.problems.append(f"the list was answered with {status}: {listed}")
            return
        mine = {job.job_id for job in self.accepted}
        missing = self._jobs - sum(job["id"] in mine for job in listed)
        for _ in range(max(missing, self._asked is not None)):
            if self._asked is not None or not self._no_more.is_set():
                self._submit()
        time.sleep(PAUSE_S)

    def _submit(self) -> None:
        if self._asked is None:
            self._asked = errand(self._dice, f"{self.name}{len(self.accepted) + 1:04}", self._directory)
        status, answer = self._ask("POST", "/v1/jobs", self._asked.request)
        if status in (200, 201):
            due_at = time.monotonic() + self._asked.verb_after_s if self._asked.verb else None
            self.accepted.append(Accepted(self._asked, answer["job"]["id"], due_at))
        else:
            self.problems.append(f"submit of {self._asked.unique} was answered with {status}: {answer}")
        self._asked = None

    def _ask(self, method: str, target: str, body: object = None) -> tuple[int, Any]:
        answer = ask(self._path, method, target, body)
        self._answered = time.monotonic()
        return answer

    def _due(self) -> list[Accepted]:
        return [job for job in self.accepted if job.due_at is not None]

    def _do(self, job: Accepted) -> None:
        job.asks += 1
        verb = job.errand.verb
        status, answer = self._ask("POST", f"/v1/jobs/{job.job_id}/{verb}")
        if status == 200 and verb == "cancel":
            job.cancelled_in = answer["attempt"]
        elif status not in (200, 409):  # 409: it had ended, or was in the queue already
            self.problems.append(f"{verb} of job {job.job_id} was answered with {status}: {answer}")
        job.due_at = None
