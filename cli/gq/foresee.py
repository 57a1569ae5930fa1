"""What `gq submit` can tell of a job before it runs: the model that it names, and an estimate where it is a training
that `gq estimate` can read. The daemon goes by it where it has no history, and learns how near it was."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpuqueue.wire.jobs import Estimated, TensorParts
from gpuqueue.wire.units import MAX_VRAM_MIB

if TYPE_CHECKING:
    from gpuqueue.estimate.read_command import Command

HINTS = ("model", ".py", ".yaml", ".yml")  # without one of these nothing can be read, and nothing is imported
MAX_NAME = 200


class Foreseen(NamedTuple):
    model: str | None = None
    estimate: Estimated | None = None


def foresee(script: str | None, script_name: str | None, words: list[str]) -> Foreseen:
    """What a script with its arguments, or a command, says. Empty where it says nothing: an estimate is an offer, and
    what cannot be read stops no job."""
    if not any(hint in word for word in (script or "", script_name or "", *words) for hint in HINTS):
        return Foreseen()
    try:
        found = _read(script, script_name, words)
        return _foreseen(found)
    except (ValueError, ArithmeticError, OSError, RecursionError):
        return Foreseen()


def _read(script: str | None, script_name: str | None, words: list[str]) -> "Command":
    from gpuqueue.estimate.read_command import Command, read_command, read_shell, read_trainer

    here = Path.cwd()
    if script is None:
        return read_command(words, here)
    if not (script_name or "").endswith(".py"):
        return read_shell(script, words, here)
    said = read_command(words, here)
    if said.reading is None and (reading := read_trainer(script, Path(script_name or "script"))) is not None:
        return Command(said.model or reading.model, reading)
    return said


def _foreseen(found: "Command") -> Foreseen:
    if found.model is None or found.reading is None:
        return Foreseen(_name(found.model))
    from gpuqueue.estimate.estimate import estimate
    from gpuqueue.estimate.parts import parts
    from gq import here
    from gq.estimate import run_of

    run = run_of(found.model, here.on_this_node() | found.reading.fields)
    told = estimate(run)
    if not 0 < told.occupied_mib <= MAX_VRAM_MIB:
        return Foreseen(_name(run.shape.name))
    estimated = Estimated(
        occupied_mib=told.occupied_mib,
        torch_peak_mib=told.torch_peak_mib,
        context_mib=run.context_mib,
        parts=TensorParts(**parts(run, told)._asdict()) if run.trains else None,
    )
    return Foreseen(_name(run.shape.name), estimated)


def _name(model: str | None) -> str | None:
    return model if model and len(model) <= MAX_NAME and model.isprintable() else None
