"""`python -m tests.crash [--rounds N] [--seed S]`: kills daemons and shims, counts, exits with 1 on any violation."""

import argparse
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.crash.trial import Outcome, trial


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="kills of the daemon [200]")
    parser.add_argument("--seed", default=secrets.token_hex(4), help="of the dice: jobs, their order, the moments")
    given = parser.parse_args()
    if given.rounds < 1:
        parser.error("--rounds must be at least 1")
    print(f"crash: {given.rounds} rounds, seed {given.seed}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="gq-crash-"))
    directory.chmod(0o755)
    begin = time.monotonic()
    outcome = trial(directory, given.seed, given.rounds)
    print(report(outcome, time.monotonic() - begin))
    if outcome.violations:
        print(f"kept for a look: {directory}", file=sys.stderr)
        return 1
    shutil.rmtree(directory)
    return 0


def report(outcome: Outcome, took_s: float) -> str:
    kills, counts = outcome.kills, outcome.counts
    moments = ", ".join(f"{count} {what}" for what, count in sorted(kills.moments.items()))
    states = ", ".join(f"{counts[state]} {state}" for state in ("succeeded", "failed", "cancelled", "stopped"))
    deaths = kills.daemon + kills.both
    lines = [
        f"containment: {outcome.containment}",
        f"killed: daemon {kills.daemon} times, shims {kills.shim}, both at once {kills.both}",
        f"the daemon died {deaths} times, {kills.in_transition} of them while jobs started or stopped ({moments})",
        f"jobs: {counts['jobs']} accepted, all looked at: {states}",
        f"attempts: {counts['attempts']}, of which {counts['never ran']} never ran and {counts['run twice']} ran twice",
        f"exit statuses: {counts['true']} true, {counts['said to be lost']} said to be lost, {counts['false']} false",
        *(f"VIOLATION: {violation}" for violation in outcome.violations),
        f"violations: {len(outcome.violations)}, after {took_s:.0f} s",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
