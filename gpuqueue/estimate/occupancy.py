"""From the tensors' peak to what the card shows as used: cached blocks that the peak could not reuse.

The two halves of a training step, loss and layers, are not alive together, but each leaves blocks in
PyTorch's cache, and the blocks of the smaller one do not fit the larger one. An optimizer step that
sets the peak leaves the activations' blocks over in the same way. From the second step on small
blocks are also cut out of the vocabulary-sized ones, which are then too small and are made anew.
"""

from typing import NamedTuple

from gpuqueue.estimate.run import Run

SOURCE = "measured: fms-acceleration on A100-80GB (nvidia-smi), fitcheck-llm on T4 (reserved + context)"

FIRST_STEP = 0.8  # of the smaller half, after one step
LATER_STEPS = 1.0
NEW_LOGITS = {"eager": 0.5, "fused": 0.9}  # fp32 logits made anew, as a share of their size
EXPANDABLE = 0.25  # expandable segments grow and shrink instead
INFERENCE = 0.04
LEAST = 0.03  # of the peak: odd sizes and half-used segments of 2 and 20 MiB
LOW, HIGH = 0.25, 2.0  # of the usual leftover: 90 % of the measured runs lie between
PEAK_ERROR = 0.05  # of the peak, which has an error of its own


class Transients(NamedTuple):
    """Bytes that exist in one part of a step only."""

    layer: float = 0.0
    loss: float = 0.0
    logits: float = 0.0  # one fp32 copy, where the loss makes any
    activations: float = 0.0  # stored by checkpointing; without it they are freed piece by piece, and reused
    step: float = 0.0  # gradients and the optimizer's scratch
    above_step: float = 0.0  # by how much the peak is above that of the optimizer's step


class Leftover(NamedTuple):
    """Bytes cached but not in use at the peak: usual, and the interval's ends, the peak's error in them."""

    low: float
    usual: float
    high: float


def leftover(run: Run, peak: float, parts: Transients) -> Leftover:
    """What the allocator holds on top of the tensors' peak. Constants from SOURCE."""
    least = LEAST * peak
    if not run.trains:
        return Leftover(-PEAK_ERROR * peak / 2, INFERENCE * peak, 3 * INFERENCE * peak)
    between = min(parts.layer, parts.loss)
    if run.steps == 1:
        between *= FIRST_STEP
    else:
        between = LATER_STEPS * between + NEW_LOGITS.get(run.loss, 0.0) * parts.logits
    in_step = min(parts.activations + max(parts.layer, parts.loss), parts.step)
    if run.expandable_segments:
        between, in_step = EXPANDABLE * between, EXPANDABLE * in_step
    between = max(between, least)
    # what the card shows is the most that is held at any moment, live or cached: at the peak, or in the step below it
    usual = max(between, in_step - parts.above_step)
    high = max(HIGH * between, HIGH * in_step - parts.above_step)
    return Leftover(LOW * usual - PEAK_ERROR * peak, usual, high + PEAK_ERROR * peak)
