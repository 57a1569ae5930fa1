"""What the output head and the loss keep alive at their peak, in bytes a token."""

from gpuqueue.estimate.layers import element_bytes
from gpuqueue.estimate.run import Run

CHUNK_ROWS = 8  # torchtune and TRL cut the tokens into this many chunks


def loss_bytes(run: Run) -> float:
    """Bytes a token from the last layer's output to the gradient of the logits."""
    return logit_copies(run) * run.shape.vocab + _hidden(run)


def logit_copies(run: Run) -> float:
    """Bytes a logit that are alive at once.

    Cross entropy in fp32 needs its log-probabilities, the gradient of the picked ones and the gradient
    of the logits: 12 B on the way back. On the way forward there are the logits, their fp32 copy, a
    shifted copy (before Transformers 4.49, and only where the batch is more than one row) and the
    log-probabilities. A kernel that works in place ("fused") needs neither log-probabilities nor
    gradients of its own; one that never writes the logits ("linear") needs next to nothing.
    """
    if run.loss == "linear":
        return 0.0
    capped = 2 if run.shape.soft_cap else 0  # tanh keeps its result
    if run.stack == "litgpt":
        return 6 + capped  # bf16 throughout: logits, log-probabilities and one gradient
    logit = 4 if element_bytes(run) == 4 else 2
    if run.loss == "chunked":
        return logit + 2 + 12 / CHUNK_ROWS
    copy = 0 if logit == 4 else 4
    shift = 4 if run.transformers < (4, 49) and run.sequences_at_once > 1 else 0
    kept = 0 if run.transformers < (4, 46) and copy else logit  # `logits = logits.float()` drops the first
    ahead = kept + copy + shift
    if run.loss == "fused":
        return max(ahead, 8) + capped
    back = 12 + (logit if run.holds_logits else 0)
    return max(ahead + 4, back) + capped


def _hidden(run: Run) -> float:
    """The final norm: its fp32 copy or kept input, and its output, times the hidden width."""
    hidden = run.shape.hidden
    element, stream = element_bytes(run), run.stream_bytes
    if run.loss == "linear":
        # chunks as wide as the hidden state (Liger picks them so) in fp32, logits and gradient of each
        return (stream + 3 * element + 8) * hidden
    if run.fused_norms or run.compiled:
        return (stream + element) * hidden
    if run.method == "full":
        return (4 + 2 * element) * hidden
    return (4 + stream) * hidden
