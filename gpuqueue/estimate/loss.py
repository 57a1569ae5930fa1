"""What the output head and the loss keep alive at their peak, in bytes a token."""

from gpuqueue.estimate.layers import element_bytes
from gpuqueue.estimate.run import Run

CHUNKS = 8  # torchtune cuts the tokens into this many; TRL into chunks of 256 tokens, which is more
LITGPT_CHUNK = 128  # lm_head_chunk_size of litgpt's fine-tuning scripts


def loss_bytes(run: Run) -> float:
    """Bytes a token from the last layer's output to the gradient of the logits."""
    return logit_copies(run) * run.shape.head_outputs + hidden_bytes(run)


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
        # Fabric turns the model's output into fp32; the loss then goes 128 positions at a time. With
        # 4-bit weights the peak is a moment later, when the head is unpacked (weights.py counts that).
        last_chunk = 4 if run.weights.startswith("nf4") else 12
        scaled = 2 if run.adapter == "llama_adapter_v2" else 0
        return 8 + last_chunk * min(1.0, LITGPT_CHUNK / run.seq_len) + capped + scaled
    logit = 4 if run.compute == "fp32" or (element_bytes(run) == 4 and not run.autocast) else 2
    if run.loss == "chunked":
        return (logit if run.stack == "torchtune" else 0) + 12 / CHUNKS
    copy = 0 if logit == 4 else 4
    if run.value_head:
        return logit + copy  # nothing runs back through them
    shift = 4 if run.transformers < (4, 49) and run.sequences_at_once > 1 else 0
    if run.shape.bigcode:
        shift = logit  # shifted before the fp32 copy
    kept = 0 if run.transformers < (4, 46) and copy else logit  # `logits = logits.float()` drops the first
    ahead = kept + copy + shift
    if run.loss == "fused":
        return max(ahead, 8) + capped
    back = 12 + (logit if run.holds_logits else 0)
    return max(ahead + 4, back) + capped


def hidden_bytes(run: Run) -> float:
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
