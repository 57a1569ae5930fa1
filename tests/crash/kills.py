"""SIGKILL at random moments, and what was going on at each of them.

A daemon is frozen before it is killed, so that what is read of its database and run directories is what was the case
when it died. Half of the kills are aimed, at a start or at a stop: a daemon that is frozen at another moment is let go,
and frozen again a little later.
"""

import os
import random
import signal
import socket
import sqlite3
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from gpuqueue.wire.procfs import Process, read_process, send_signal
from gpuqueue.wire.rundir import ALIVE, EXIT, STOP
from tests.crash.nursery import QuickNode
from tests.e2e.node import pids

AIM_S = 5.0
DWELL_S = 1.2
PAUSE_S = 0.01
STARTS, STOPS = frozenset({"starting", "in the making"}), frozenset({"stopping"})
TRANSITIONS = STARTS | STOPS

Key = tuple[int, int]


@dataclass(slots=True)
class Kills:
    """What was killed. `in_transition`: daemons that died while jobs started or stopped; `moments` says how: a job
    "starting" or "stopping" in the database, a run directory "in the making". Not counted as that are an attempt
    that was "ending" (its end not yet settled), and the daemon's own start ("recovering")."""

    daemon: int = 0
    shim: int = 0
    both: int = 0
    in_transition: int = 0
    moments: Counter[str] = field(default_factory=Counter)
    shims: set[Key] = field(default_factory=set)  # the attempts whose monitor was killed


class Killer:
    """Every verb is False where there was nothing to kill."""

    def __init__(self, node: QuickNode, dice: random.Random) -> None:
        self.kills = Kills()
        self._node = node
        self._dice = dice
        self._runs = node.state / "runs"
        self._started = 0.0
        self._ready_s = 0.5  # how long a start takes here, as last seen
        self._made: set[str] = set()

    def start(self) -> None:
        self._node.start(wait=False)
        self._started = time.monotonic()

    def until_ready(self) -> None:
        """Raises AssertionError where the daemon does not come."""
        self._node.until_ready()
        self._ready_s = time.monotonic() - self._started

    def daemon(self, aimed: bool) -> bool:
        """At any moment, that of its own start included; aimed, while jobs start or stop. Sometimes the shims that it
        has just launched are slow: they go on when the next daemon has long made up its mind about their attempts."""
        if not aimed and self._dice.random() < 0.3:
            time.sleep(max(0.0, self._started + self._ready_s * self._dice.uniform(0, 1.1) - time.monotonic()))
        else:
            self.until_ready()
            time.sleep(self._dice.uniform(0, DWELL_S))
        seen = self._freeze(aimed)
        slow = (
            [shim for shim, name in self.shims() if name in self._in_the_making()] if self._dice.random() < 0.5 else []
        )
        for shim in slow:
            send_signal(shim, signal.SIGSTOP)
        self._node.kill()
        self._count(seen | ({"slow shim"} if slow else set()))
        self.kills.daemon += 1
        self.start()
        if slow:
            self.until_ready()
            time.sleep(self._dice.uniform(0, DWELL_S))
        for shim in slow:
            send_signal(shim, signal.SIGCONT)
        return True

    def shim(self, aimed: bool) -> bool:
        """Of any job; aimed, of one that starts or stops."""
        self.until_ready()
        time.sleep(self._dice.uniform(0, DWELL_S))
        deadline = time.monotonic() + AIM_S
        while not (shims := self._targets(aimed)) and time.monotonic() < deadline:
            time.sleep(PAUSE_S)
        shims = shims or self.shims()
        hit = bool(shims) and self._hit(self._dice.choice(shims))
        self.kills.shim += hit
        return hit

    def both(self, aimed: bool) -> bool:
        """A daemon and some of its shims, in either order. The next daemon comes at once or a little later: jobs that
        end meanwhile have nobody who watches them."""
        self.until_ready()
        time.sleep(self._dice.uniform(0, DWELL_S))
        seen = self._freeze(aimed)
        shims = self.shims()
        if not shims:
            self._node.thaw()
            return False
        shims = self._dice.sample(shims, self._dice.randint(1, len(shims)))
        if self._dice.random() < 0.5:
            hits = sum(map(self._hit, shims))
            self._node.kill()
        else:
            self._node.kill()
            hits = sum(map(self._hit, shims))
        self._count(seen)
        self.kills.both += hits > 0
        self.kills.daemon += hits == 0
        time.sleep(self._dice.choice((0.0, self._dice.uniform(0, DWELL_S))))
        self.start()
        return hits > 0

    # The daemon

    def _freeze(self, aimed: bool) -> set[str]:
        """What goes on at the moment at which the daemon now stands still."""
        target = self._dice.choice((STARTS, STOPS))
        deadline = time.monotonic() + AIM_S
        while True:
            self._node.freeze()
            seen = self._look()
            if not aimed or seen & target or time.monotonic() > deadline:
                return seen
            self._node.thaw()
            time.sleep(self._dice.uniform(0, 0.05))

    def _count(self, seen: set[str]) -> None:
        self.kills.moments.update(seen)
        self.kills.in_transition += bool(seen & TRANSITIONS)

    def _look(self) -> set[str]:
        seen = set()
        if self._in_the_making():
            seen.add("in the making")
        if not self._listens():
            seen.add("recovering")
        try:
            with closing(sqlite3.connect(f"file:{self._node.state}/gpuqueue.db?mode=ro", uri=True, timeout=0)) as store:
                seen |= {state for (state,) in store.execute("SELECT DISTINCT state FROM job")} & TRANSITIONS
                held = store.execute("SELECT job_id, number, phase FROM attempt WHERE phase != 'ended'").fetchall()
        except sqlite3.OperationalError:  # not there yet, or locked while it is being opened
            return seen
        if any(phase == "releasing" or (self._runs / f"{job}.{number}" / EXIT).exists() for job, number, phase in held):
            seen.add("ending")
        return seen

    def _in_the_making(self) -> list[str]:
        """Run directories of attempts that are neither alive nor over."""
        names = [entry.name for entry in os.scandir(self._runs) if entry.is_dir()] if self._runs.is_dir() else []
        new = [name for name in names if name not in self._made]
        self._made |= {name for name in new if any((self._runs / name / record).exists() for record in (ALIVE, EXIT))}
        return [name for name in new if name not in self._made]

    def _listens(self) -> bool:
        with closing(socket.socket(socket.AF_UNIX)) as probe:
            return probe.connect_ex(str(self._node.socket)) == 0

    # Shims

    def shims(self) -> list[tuple[Process, str]]:
        """Every shim and adopter with the name of its run directory; not their children, which look alike."""
        found = {pid: name for pid in pids() if (name := self._run_of(pid))}
        processes = [(process, name) for pid, name in found.items() if (process := read_process(pid))]
        return [(process, name) for process, name in processes if process.parent not in found and not process.dead]

    def _targets(self, aimed: bool) -> list[tuple[Process, str]]:
        return [(process, name) for process, name in self.shims() if not aimed or self._starts_or_stops(name)]

    def _hit(self, shim: tuple[Process, str]) -> bool:
        """False where it was gone before."""
        process, name = shim
        if not send_signal(process, signal.SIGKILL):
            return False
        job_id, _, attempt = name.partition(".")
        self.kills.shims.add((int(job_id), int(attempt)))
        return True

    def _run_of(self, pid: int) -> str | None:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return None
        last = Path(os.fsdecode(words[-2])) if len(words) > 2 else Path()
        return last.name if last.parent == self._runs and any(b"shim" in word for word in words) else None

    def _starts_or_stops(self, name: str) -> bool:
        there = self._runs / name
        return not (there / ALIVE).exists() or (there / STOP).exists() or (there / EXIT).exists()
