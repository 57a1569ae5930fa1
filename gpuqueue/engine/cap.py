"""`--cap`: what the frameworks of a job read of its claim (rule P5), as environment, and said in its log."""

import os
from collections.abc import Sequence
from pathlib import Path

from gpuqueue.core.cap import CONTEXT_MIB, allocator_cap_mib, permille_of
from gpuqueue.wire.jobs import CheckView, SubmitRequest
from gpuqueue.wire.units import format_mib

HOOK = str(Path(__file__).parents[1] / "hook")  # run by the job's Python, never imported here
XLA = ("XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION")  # JAX refuses to start with both
MPS_PIPE, MPS_LIMIT = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
MPS_CONTROL = b"nvidia-cuda-mps-control"
CONTAINERS = frozenset({"apptainer", "docker", "enroot", "podman", "singularity"})


def cap(
    request: SubmitRequest, claim_mib: int, card_totals_mib: Sequence[int], report: Path
) -> tuple[dict[str, str], list[str]]:
    """(environment, sentences for the log). What the user has set already is left alone, and said. Fractions are of
    the total memory that the driver names, of the largest card, since JAX takes one for all."""
    if not request.cap or not card_totals_mib:
        return {}, []
    env, cap_mib = request.env, allocator_cap_mib(claim_mib)
    largest_mib = max(card_totals_mib)
    ours = {
        "GQ_CAP_MIB": str(cap_mib),
        "GQ_REPORT": str(report),
        "PYTHONPATH": os.pathsep.join(filter(None, [HOOK, env.get("PYTHONPATH")])),
    }
    names = "PyTorch and TensorFlow"
    notes = []
    theirs = next((name for name in XLA if env.get(name)), None)
    if theirs is None:
        ours[XLA[0]] = _fraction(cap_mib, largest_mib)
        names = "PyTorch, TensorFlow and JAX"
    else:
        notes.append(f"JAX keeps to the {theirs}={env[theirs]} of your shell")
    if env.get(MPS_LIMIT):
        notes.append(f"MPS keeps to the {MPS_LIMIT}={env[MPS_LIMIT]} of your shell")
    elif env.get(MPS_PIPE) and mps_runs():
        ours[MPS_LIMIT] = ",".join(f"{number}={claim_mib}M" for number in range(len(card_totals_mib)))
    ours["GQ_CAP_ENV"] = " ".join(name for name in (XLA[0], MPS_LIMIT) if name in ours)
    notes.insert(0, f"--cap: {names} may hold {format_mib(cap_mib)}; the rest of the claim is CUDA's own")
    return ours, notes + _hints(request, claim_mib, largest_mib)


def _hints(request: SubmitRequest, claim_mib: int, total_mib: int) -> list[str]:
    hints = []
    text = request.script if request.script is not None else " ".join(request.command)
    words = {os.path.basename(word) for word in text.split()}  # noqa: PTH119 - a name, not a path of this machine
    if "vllm" in text and "gpu-memory-utilization" not in text and "gpu_memory_utilization" not in text:
        hints.append(
            f"vLLM takes 0.9 of the card unless told: --gpu-memory-utilization {_fraction(claim_mib, total_mib)}"
        )
    for name in sorted(words & CONTAINERS):
        hints.append(f"--cap does not reach into a container: what {name} starts has an environment of its own")
    return hints


def _fraction(mib: int, total_mib: int) -> str:
    return f"{permille_of(mib, total_mib) / 1000:.3f}"


def mps_runs() -> bool:
    """Whether NVIDIA's MPS has its control process on this node."""
    return any(_program(entry) == MPS_CONTROL for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _program(process: Path) -> bytes:
    try:
        return os.path.basename((process / "cmdline").read_bytes().split(b"\0", 1)[0])  # noqa: PTH119
    except OSError:  # it has ended
        return b""


def check() -> CheckView:
    """The line of `gq doctor`."""
    mps = "MPS runs, and gets the claim as its pinned limit" if mps_runs() else "MPS does not run"
    return CheckView(
        name="cap",
        level="note",
        text=f"--cap tells PyTorch 1.8 or newer, TensorFlow and JAX to keep to the claim less {CONTEXT_MIB} MiB for "
        f"CUDA itself, and gives vLLM a hint; {mps}. Containers and programs in other languages are not capped.",
    )
