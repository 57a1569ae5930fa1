"""An estimate of a training run in the parts that the job itself can count after a step, for the two to be compared."""

from typing import NamedTuple

from gpuqueue.estimate.allocator import MIB
from gpuqueue.estimate.estimate import Estimate
from gpuqueue.estimate.run import Run
from gpuqueue.estimate.states import state_bytes

FROZEN = ("weights", "reference model", "gathered weights")  # components that are not trained, beside an adapter


class Parts(NamedTuple):
    """Whole MiB on one card; in all torch's peak. After a step weights, gradients and states are alive together, so
    they are never more than the peak: what it has beyond them are activations, logits and scratch."""

    frozen_mib: int
    trained_mib: int
    gradients_mib: int
    optimizer_mib: int
    rest_mib: int


def parts(run: Run, found: Estimate) -> Parts:
    """`found` is the estimate of that run, which trains."""
    size = {component.name: component.bytes for component in found.components}
    states = state_bytes(run)
    frozen = sum(size.get(name, 0) for name in FROZEN)
    trained = size.get("adapters", 0)
    if run.method == "full":
        frozen, trained = size.get("reference model", 0), frozen - size.get("reference model", 0)
    kept = (_mib(frozen), _mib(trained), _mib(states.gradients), _mib(states.optimizer))
    return Parts(*kept, max(0, found.torch_peak_mib - sum(kept)))


def _mib(size: float) -> int:
    return -(-int(size) // MIB)
