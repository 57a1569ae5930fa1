"""One trial: jobs come and go, daemons and shims are killed, everything is left to end; then it is looked at."""

import fcntl
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.kills import Killer, Kills
from tests.crash.nursery import QuickNode
from tests.crash.traffic import Accepted, Traffic, ask
from tests.crash.verdict import faults, read_truth, tally
from tests.e2e.node import Node

CUSTOMERS, JOBS = "abcd", 10  # forty jobs at a time
CARDS = "32607M,24G"
CONFIG = """
[daemon]
sample = "1s"
[restart]
backoff_base = "1s"
backoff_max = "2s"
"""
DRAIN_S, GONE_S = 90.0, 10.0
TRIES = 20
REPEATED = 20
PER_SHIM, PER_BOTH = 4, 10  # kills of the daemon for each of a shim, for each of both


@dataclass(slots=True)
class Outcome:
    kills: Kills
    containment: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)


def trial(directory: Path, seed: str, rounds: int) -> Outcome:
    """`rounds` kills of the daemon, a quarter as many of shims, a tenth of both. Takes everything down again."""
    node = QuickNode(directory, cards=CARDS, config=CONFIG)
    truth = directory / "truth"
    truth.mkdir()
    killer = Killer(node, random.Random(f"{seed} kills"))
    customers = [Traffic(name, node.socket, truth, random.Random(f"{seed} {name}"), JOBS) for name in CUSTOMERS]
    outcome = Outcome(killer.kills)
    found = outcome.violations
    try:
        killer.start()
        killer.until_ready()
        outcome.containment = ask(node.socket, "GET", "/v1/node")[1]["containment"]
        for customer in customers:
            customer.start()
        node.until(lambda: sum(len(one.accepted) for one in customers) >= len(customers) * JOBS, "all jobs are there")
        _kill(killer, random.Random(f"{seed} order"), rounds)
        killer.until_ready()
        for customer in customers:
            customer.finish()
        for customer in customers:
            customer.join()
        _drain(node)
        accepted = [job for customer in customers for job in customer.accepted]
        found += [problem for customer in customers for problem in customer.problems]
        for job in accepted:
            name = f"job {job.job_id} ({job.errand.unique})"
            found += [f"{name}: {fault}" for fault in _of_job(node, truth, job, outcome)]
        found += [*_of_repeated(node, accepted), *_of_cards(node), *_of_shims(killer)]
        node.stop()
        found += [*_of_database(node, accepted), *_of_log(node)]
    except AssertionError as error:
        found += [f"the trial broke off: {error}", *_of_log(node)]
    finally:
        for customer in customers:
            customer.finish()
        node.close()
    if 2 * killer.kills.in_transition < killer.kills.daemon + killer.kills.both:
        found.append("less than half of the daemon's deaths fell on a start or a stop: nothing is proved")
    return outcome


def _kill(killer: Killer, dice: random.Random, rounds: int) -> None:
    shims, both = max(1, rounds // PER_SHIM), max(1, rounds // PER_BOTH)
    verbs = [killer.daemon] * rounds + [killer.shim] * shims + [killer.both] * both
    aims = [number % 2 == 0 for number in range(len(verbs))]
    for verb, aimed in dice.sample(list(zip(verbs, aims, strict=True)), len(verbs)):
        if not any(verb(aimed) for _ in range(TRIES)):
            raise AssertionError(f"{TRIES} times there was nothing to kill")


def _drain(node: Node) -> None:
    """Until no job is open and no lease is held, or for as long as that may take: what is left will be found."""
    deadline = time.monotonic() + DRAIN_S
    while time.monotonic() < deadline:
        _, jobs = ask(node.socket, "GET", "/v1/jobs")
        _, cards = ask(node.socket, "GET", "/v1/cards")
        if not jobs and not any(card["tenants"] for card in cards):
            return
        time.sleep(0.1)


def _of_job(node: Node, truth: Path, job: Accepted, outcome: Outcome) -> Iterator[str]:
    status, shown = ask(node.socket, "GET", f"/v1/jobs/{job.job_id}")
    if status != 200:
        yield f"lost: {shown}"
        return
    file = truth / job.errand.unique
    told = read_truth(file)
    unwatched = frozenset(attempt for job_id, attempt in outcome.kills.shims if job_id == job.job_id)
    outcome.counts += tally(shown, told)
    yield from faults(job, shown, told, unwatched)
    if _is_locked(file):
        yield "a process of it is left"


def _of_repeated(node: Node, accepted: list[Accepted]) -> Iterator[str]:
    """J5: what was accepted is so for good. A few, since each waits for a tick."""
    for job in accepted[:: max(1, len(accepted) // REPEATED)]:
        status, answer = ask(node.socket, "POST", "/v1/jobs", job.errand.request)
        if (status, answer.get("job", {}).get("id")) != (200, job.job_id):
            yield f"job {job.job_id}, submitted once more, is answered with {status}: {answer}"


def _is_locked(file: Path) -> bool:
    if not file.exists():
        return False
    with file.open("rb") as truth:
        try:
            fcntl.flock(truth, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _of_cards(node: Node) -> Iterator[str]:
    for card in ask(node.socket, "GET", "/v1/cards")[1]:
        held = {name: card[name] for name in ("charged_mib", "used_mib", "tenants", "notes") if card[name]}
        if held:
            yield f"card {card['index']} at the end: {held}"


def _of_shims(killer: Killer) -> Iterator[str]:
    """One that has written the end needs a moment to leave."""
    deadline = time.monotonic() + GONE_S
    while killer.shims() and time.monotonic() < deadline:
        time.sleep(0.05)
    for process, name in killer.shims():
        yield f"shim {process.pid} of {name} is left"


def _of_database(node: Node, accepted: list[Accepted]) -> Iterator[str]:
    with closing(sqlite3.connect(node.state / "gpuqueue.db")) as store:
        if (said := store.execute("PRAGMA integrity_check").fetchall()) != [("ok",)]:
            yield f"the database is damaged: {said}"
        if orphans := store.execute("PRAGMA foreign_key_check").fetchall():
            yield f"rows of the database refer to nothing: {orphans}"
        if held := store.execute("SELECT job_id, number, phase FROM attempt WHERE phase != 'ended'").fetchall():
            yield f"leases are held at the end: {held}"
        stored = {key for (key,) in store.execute("SELECT idempotency_key FROM job")}
    if unasked := stored - {job.errand.request["idempotency_key"] for job in accepted}:
        yield f"jobs that nobody was told of: {unasked}"


def _of_log(node: Node) -> Iterator[str]:
    text = node.log.read_text(errors="replace")
    for sign in ("Traceback (most recent call last)", "tick failed"):
        if times := text.count(sign):
            first = text.index(sign)
            yield f"the daemon's log says {sign!r} {times} times, first: {text[max(0, first - 300) : first + 1500]}"
