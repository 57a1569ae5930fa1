"""The command line of the stand-in training."""

import argparse
import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from gpuqueue.gpu.simdir import SIM_DIR_ENV
from gpuqueue.simjob.layouts import LAYOUTS
from gpuqueue.wire.units import parse_mib, parse_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    mib: int
    steps: int  # every so many
    up_to_mib: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    vram_mib: int
    gpu_percent: int
    cpu_percent: int
    seconds: float | None
    steps: int | None
    step_s: float
    save_every: int | None
    save_s: float
    checkpoint_dir: Path | None
    layout: str
    resume_from: Path | None
    crash_at_step: int | None
    crash_attempts: int | None
    crash_signal: signal.Signals | None
    exit_code: int | None
    stop_exit_code: int | None
    grow: Growth | None
    idle_after_s: float | None
    ignore_term: bool
    escape_mib: int | None
    io_mib_s: int
    load_s: float
    attempt: int
    sim_dir: Path | None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"simjob: {message} (--help lists the options)\n")


def parse(argv: list[str]) -> Options:
    """The options, with what the environment adds. A mistake ends the program: one line, status 2."""
    parser = _parser()
    given = parser.parse_args(argv)
    resume = given.resume_from or os.environ.get("GQ_RESUME_FROM") or None
    attempt = os.environ.get("GQ_ATTEMPT", "1")
    if given.save_every is not None and given.checkpoint_dir is None:
        parser.error("--save-every needs --checkpoint-dir (or GQ_CHECKPOINT_DIR)")
    growth = given.grow and Growth(mib=given.grow[0], steps=given.grow[1], up_to_mib=given.grow_to)
    return Options(
        vram_mib=given.vram,
        gpu_percent=given.gpu_util,
        cpu_percent=given.cpu_util,
        seconds=given.seconds if given.seconds is not None or given.steps is not None else 10.0,
        steps=given.steps,
        step_s=given.step_seconds,
        save_every=given.save_every,
        save_s=given.save_seconds,
        checkpoint_dir=given.checkpoint_dir,
        layout=given.layout,
        resume_from=Path(resume) if resume else None,
        crash_at_step=given.crash_at_step,
        crash_attempts=given.crash_attempts,
        crash_signal=given.crash_signal,
        exit_code=given.exit_code,
        stop_exit_code=given.stop_exit_code,
        grow=growth or None,
        idle_after_s=given.idle_after,
        ignore_term=given.ignore_term,
        escape_mib=given.escape,
        io_mib_s=given.io_rate,
        load_s=given.load_seconds,
        attempt=int(attempt) if attempt.isdigit() else 1,
        sim_dir=_sim_dir(given.sim_dir),
    )


def _sim_dir(given: Path | None) -> Path | None:
    """`--sim-dir`, else what the queue says, else `sim` beside the daemon's socket."""
    if given is not None:
        return given
    if os.environ.get(SIM_DIR_ENV):
        return Path(os.environ[SIM_DIR_ENV])
    if os.environ.get("GQ_SOCKET"):
        return Path(os.environ["GQ_SOCKET"]).absolute().parent / "sim"
    return None


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m gpuqueue.simjob",
        allow_abbrev=False,
        description="A stand-in training on a simulated card: takes VRAM, steps, saves, resumes, fails on demand.",
    )
    add = parser.add_argument
    add("--vram", type=_size, default=0, metavar="SIZE", help="VRAM on every visible card it is pinned to [0: no card]")
    add("--gpu-util", type=_percent, default=95, metavar="PERCENT", help="GPU utilisation while it works [95]")
    add("--cpu-util", type=_count, default=0, metavar="PERCENT", help="CPU burnt, in percent of one core [0]")
    add(
        "--io-rate",
        type=_size,
        default=0,
        metavar="SIZE",
        help="written to a temporary file each second, as a download",
    )
    add("--seconds", type=_seconds, metavar="TIME", help="ends after so long [10s, if there is no --steps]")
    add("--steps", type=_count, metavar="N", help="ends after step N")
    add("--step-seconds", type=_seconds, default=0.1, metavar="TIME", help="how long a step takes [0.1]")
    add("--load-seconds", type=_seconds, default=0.0, metavar="TIME", help="idles so long before it takes VRAM [0]")
    add("--save-every", type=_positive, metavar="N", help="a checkpoint every N steps")
    add("--save-seconds", type=_seconds, default=0.0, metavar="TIME", help="how long a save takes [0]")
    directory = os.environ.get("GQ_CHECKPOINT_DIR") or None
    add("--checkpoint-dir", type=Path, default=directory and Path(directory), metavar="DIR", help="[GQ_CHECKPOINT_DIR]")
    add("--layout", choices=sorted(LAYOUTS), default="hf", help="whose checkpoints it writes [hf]")
    add("--resume-from", metavar="PATH", help="[GQ_RESUME_FROM]")
    add("--crash-at-step", type=_count, metavar="N", help="fails when it gets to step N, or starts there (0)")
    add("--crash-attempts", type=_count, metavar="K", help="only attempts 1 to K crash [all]")
    add("--crash-signal", type=_signal, metavar="SIG", help="crashes by this signal to itself")
    add("--exit-code", type=_count, metavar="N", help="status of the crash [1], or of the end [0]")
    add("--stop-exit-code", type=_count, metavar="N", help="status after a stop signal [128 + its number]")
    add("--grow", type=_growth, metavar="SIZE[/STEPS]", help="takes so much more every STEPS steps [1]")
    add("--grow-to", type=_size, metavar="SIZE", help="grows no further than this")
    add("--idle-after", type=_seconds, metavar="TIME", help="then only holds its VRAM")
    add("--ignore-term", action="store_true", help="ignores every signal that can be")
    add("--escape", type=_size, nargs="?", const=1024, metavar="SIZE", help="a double-forked child holds so much [1G]")
    add("--sim-dir", type=Path, metavar="DIR", help=f"where the simulated cards are [{SIM_DIR_ENV}]")
    return parser


def _size(text: str) -> int:
    try:
        return parse_mib(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _seconds(text: str) -> float:
    """A duration as everywhere in gpuqueue, and fractions of a second too: tests are short."""
    if re.fullmatch(r"\d*\.\d+s?|\d+\.", text):
        return float(text.rstrip("s"))
    try:
        return float(parse_seconds(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _positive(text: str) -> int:
    if _count(text) == 0:
        raise argparse.ArgumentTypeError("must be at least 1")
    return int(text)


def _percent(text: str) -> int:
    if _count(text) > 100:
        raise argparse.ArgumentTypeError(f"{text!r} is more than 100 %")
    return int(text)


def _growth(text: str) -> tuple[int, int]:
    size, slash, steps = text.partition("/")
    return _size(size), _positive(steps) if slash and steps != "step" else 1


def _signal(text: str) -> signal.Signals:
    name = text.upper() if text.upper().startswith("SIG") else f"SIG{text.upper()}"
    try:
        return signal.Signals(int(text)) if text.isdigit() else signal.Signals[name]
    except (ValueError, KeyError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a signal: write for example SIGKILL") from error
