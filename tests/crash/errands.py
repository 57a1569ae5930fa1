"""What the crash test submits: jobs of which it is known beforehand how they must end."""

import json
import os
import random
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.node import base_env

WORKER = Path(__file__).with_name("worker.py")
CRASH_SIGNALS = (signal.SIGSEGV, signal.SIGUSR1, signal.SIGKILL, signal.SIGABRT)
KINDS = {
    "plain": 30,
    "signal": 8,
    "retry": 10,
    "loop": 3,
    "children": 12,
    "deaf": 1,
    "cancel": 18,
    "requeue": 6,
    "sim": 7,
    "resume": 6,
}
SIM_MIB = 1024
SAVED_BEFORE_THE_CRASH = 1  # the status of a simjob that crashed after its first checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """One job. `restarts` says whether a failed attempt is followed by another; `verb` (cancel or requeue) is what its
    owner does to it in the end, so long after it was accepted."""

    unique: str
    kind: str
    restarts: bool
    verb: str | None
    verb_after_s: float
    request: dict[str, Any]


def errand(dice: random.Random, name: str, directory: Path) -> Errand:
    """Some job of that name; its truth is kept in `directory`."""
    kind = dice.choices(list(KINDS), list(KINDS.values()))[0]
    unique = f"{name}-{kind}"
    plan = {"run_s": round(dice.uniform(0.05, 1.2), 2), "codes": [0], "child": None, "ignore_term": False, "simjob": []}
    restarts = kind in ("retry", "loop", "resume")
    verb = kind if kind in ("cancel", "requeue") else None
    vram_mib = dice.choice((0, 1024, 3072, 6144))
    checkpoint_dir = None
    match kind:
        case "plain":
            plan["codes"] = [dice.randrange(10)]
        case "signal":
            plan["codes"] = [-dice.choice(CRASH_SIGNALS)]
        case "retry":
            plan["codes"] = [dice.randrange(1, 10) for _ in range(dice.randrange(1, 3))] + [0]
        case "loop":
            plan["codes"] = [dice.randrange(1, 10)]
            verb = dice.choice(("cancel", None))
        case "children":
            plan |= {"codes": [dice.randrange(10)], "child": dice.choice(("near", "escaped"))}
        case "deaf":
            plan["child"] = "deaf"
        case "cancel":
            plan |= {"run_s": dice.choice((0.5, 30)), "ignore_term": dice.random() < 0.4, "codes": [dice.randrange(10)]}
        case "requeue":
            plan |= {"run_s": 1, "ignore_term": dice.random() < 0.4, "codes": [dice.randrange(10)]}
        case "sim":
            vram_mib = SIM_MIB
            plan["simjob"] = ["--vram", f"{SIM_MIB}M", "--seconds", "0.3", "--exit-code", str(dice.randrange(10))]
        case "resume":
            vram_mib, checkpoint_dir = SIM_MIB, str(directory / f"{unique}.d")
            steps = ["--steps", "12", "--step-seconds", "0.05", "--save-every", "4"]
            crash = ["--crash-at-step", "6", "--crash-attempts", "1"]
            plan["simjob"] = ["--vram", f"{SIM_MIB}M", *steps, *crash]
    request = {
        "idempotency_key": f"{unique}-{dice.getrandbits(64):016x}",
        "name": unique,
        "vram_mib": vram_mib,
        "command": [sys.executable, "-I", "-S", str(WORKER), str(directory / unique), unique, json.dumps(plan)],
        "cwd": str(directory),
        "env": {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": base_env()["PYTHONPATH"]},
        "class": dice.choice(("train", "train", "light")),
        "restart": "on-failure" if restarts else "never",
        "grace_s": 2,
        "checkpoint_dir": checkpoint_dir,
    }
    verb_after_s = dice.uniform(0, 2.5)
    return Errand(unique=unique, kind=kind, restarts=restarts, verb=verb, verb_after_s=verb_after_s, request=request)
