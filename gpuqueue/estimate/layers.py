"""What one transformer layer keeps for the backward pass, in bytes a token.

Counted tensor by tensor for the code of Transformers, PEFT, litgpt and torchtune: a norm keeps an
fp32 copy of its input, a frozen linear keeps nothing, a trained one its input, an adapter in fp32 a
copy of its input of its own. The sums agree with the live tensors of real training steps run under
a tensor-counting dispatch mode (docs/estimate.md, "How the activations were counted").
"""

from typing import NamedTuple

from gpuqueue.estimate.run import Run
from gpuqueue.estimate.states import adapted_linears

LLAMA_ADAPTER_START = 2  # the first layer that gets a prompt
EAGER_SCORE_BYTES = {2: 14.8, 4: 18.0}  # at the peak of its backward pass, b * heads * S * S each


class LayerBytes(NamedTuple):
    """Bytes a token of one layer: kept with checkpointing, kept without, and on top while it runs back.
    `unsaved` is what all layers together keep less, since nothing before the first adapter runs back."""

    store: float
    saved: float
    work: float
    unsaved: float


def layer_bytes(run: Run) -> LayerBytes:
    """LayerBytes of an average layer of this run."""
    element = element_bytes(run)
    saved = (
        _norms(run, element)
        + _attention(run, element)
        + _feed_forward(run, element)
        + _adapters(run, element)
        + _inputs_of_4bit_linears(run, element)
    )
    store = 0.0 if run.offload_activations else float(run.stream_bytes * run.shape.hidden)
    if run.shape.bigcode:  # the cache is a view that keeps the fused projection's whole output alive
        store += element * (run.shape.q_width + 2 * run.shape.kv_width)
    return LayerBytes(store, saved, _backward_work(run, element), _unsaved(run, element, saved))


def _unsaved(run: Run, element: int, saved: float) -> float:
    if run.method == "full" or run.adapter == "llama_adapter_v2":
        return 0.0
    if run.adapter == "llama_adapter":
        return LLAMA_ADAPTER_START * saved
    first_norm = _norms(run, element) / max(1, min(2, run.shape.norms))
    return first_norm + (_feed_forward(run, element) if run.shape.parallel else 0.0)


def element_bytes(run: Run) -> int:
    """Bytes of an activation. An fp32 stream makes every activation fp32 where autocast does not turn
    the linears' inputs back, which it does not for bitsandbytes."""
    if run.stream_bytes == 4 and (run.bitsandbytes or not run.autocast):
        return 4
    return run.compute_bytes


def _norms(run: Run, element: int) -> float:
    shape = run.shape
    full = run.method == "full"
    widths = shape.norms * shape.hidden
    heads = (shape.q_width + shape.kv_width) if shape.qk_norm else 0
    if run.fused_norms or run.compiled:
        kept = run.stream_bytes * (widths + heads)
    elif shape.layer_norm:
        shared = run.shape.parallel and not run.autocast  # both norms keep the stream itself, which is one
        kept = (4 if run.autocast else run.stream_bytes) * (shape.hidden if shared else widths)
    else:
        kept = 4 * (widths + heads)  # the fp32 copy
        if full:
            kept += element * (widths + heads)  # what the norm's own weight multiplies
    if full and not run.compiled:
        kept += element * 2 * shape.hidden  # the two norms' outputs, inputs of trained linears
    return kept


def _attention(run: Run, element: int) -> float:
    shape = run.shape
    query, value = shape.q_width, shape.value_width
    key = shape.kv_width
    if shape.kv_lora_rank:
        key = shape.q_width  # MLA unpacks keys and values to every head, and keeps the compressed ones
        kept = query + key + 2 * value + shape.kv_lora_rank + shape.q_lora_rank
    elif expands_kv(run) and key != query:
        kept = 4 * query
    elif run.stack == "litgpt":
        kept = query + key + (query + 2 * key) + query  # values are a view that keeps the fused qkv alive
    else:
        kept = 2 * query + 2 * key
    total = element * kept + 4 * shape.heads  # and the softmax's log-sum
    if run.attention == "eager":
        total += eager_saved(element) * shape.heads * run.seq_len
    return total


def expands_kv(run: Run) -> bool:
    """Whether keys and values are repeated for every query head before attention sees them."""
    if run.attention == "flash":
        return False
    own_code = run.stack in ("litgpt", "torchtune")
    return run.expand_kv or own_code or run.attention == "eager" or run.transformers < (4, 48)


def eager_saved(element: int) -> int:
    """Bytes a score: fp32 probabilities and, in half precision, their copy for the matmul."""
    return 6 if element == 2 else 4


def _feed_forward(run: Run, element: int) -> float:
    shape = run.shape
    copies = 3 if shape.gated_mlp else 1  # gate, act(gate), up | the activation's input
    if run.fused_mlp and shape.gated_mlp:
        copies = 2
    if run.method == "full" or _shares_input(run, "down_proj"):
        copies += 1  # the input of a trained down projection
    total = float(element * copies * shape.active_ffn())
    if shape.experts:
        gathered = 2 if run.method == "full" else 1
        total += element * gathered * shape.experts_per_token * shape.hidden + 8 * shape.experts
    return total


def _inputs_of_4bit_linears(run: Run, element: int) -> float:
    """bitsandbytes up to 0.43, which litgpt pins, hangs the inputs of 4-bit linears on the graph itself.
    They live as long as the loss: those of the step before are still there in the next forward pass."""
    if run.stack != "litgpt" or not run.weights.startswith("nf4"):
        return 0.0
    shape = run.shape
    of_norms = (1 if shape.norms == 1 else 2) * shape.hidden  # where one norm feeds both blocks it is one input
    return element * (1 + run.step_before) * (of_norms + shape.q_width + shape.active_ffn())


def _shares_input(run: Run, linear: str) -> bool:
    """An adapter in the activations' own type uses the linear's input itself instead of a copy."""
    return (
        run.method in ("lora", "qlora")
        and run.adapter_bytes == element_bytes(run)
        and not run.dropout
        and linear in adapted_linears(run)
    )


def _adapters(run: Run, element: int) -> float:
    if run.method == "full":
        return 0.0
    if run.adapter != "lora":
        return _llama_adapter(run, element)
    linears = adapted_linears(run)
    ranks = 2 * element * run.rank * len(linears)
    if run.stack == "litgpt":
        return ranks + _litgpt_adapters(run, element)
    total = 0.0
    shared: set[str] = set()
    for name, (inputs, _, per_token) in linears.items():
        width = inputs * per_token
        if run.dropout:
            total += width  # the mask, a byte an element
        if run.adapter_bytes == element:
            total += element * width if run.dropout else 0
            shared.add("mlp" if name in ("gate_proj", "up_proj") else "attention")
        else:
            total += (element if run.autocast else run.adapter_bytes) * width
    if run.adapter_bytes == element and not run.dropout:
        total += element * run.shape.hidden * len(shared)
    return total + ranks


def _llama_adapter(run: Run, element: int) -> float:
    """The prompt's attention, kept for its gate; in version 2 also every linear's output, which is scaled,
    and what each norm's weight multiplies."""
    shape = run.shape
    gated = element * shape.q_width
    if run.adapter == "llama_adapter":
        return gated
    outputs = shape.q_width + 2 * shape.kv_width + 2 * shape.hidden
    outputs += shape.active_ffn() * (2 if shape.gated_mlp else 1)
    scaled_norms = 0 if shape.layer_norm else 4 * shape.norms * shape.hidden
    return gated + element * outputs + scaled_norms


def _litgpt_adapters(run: Run, element: int) -> float:
    """litgpt adapts the fused qkv: one dropout copy and mask of its input, and the adapter's outputs."""
    linears = adapted_linears(run)
    fused = [name for name in ("q_proj", "k_proj", "v_proj") if name in linears]
    per_input = element + 1 if run.dropout else 0
    total = 0.0
    if fused:
        total += per_input * run.shape.hidden + element * sum(linears[name][1] for name in fused)
    return total + sum(per_input * i for name, (i, _, _) in linears.items() if name not in fused)


def _backward_work(run: Run, element: int) -> float:
    """On top of what the layer keeps: gradients inside its MLP, of its output, and the output itself."""
    shape = run.shape
    width: float = shape.ffn
    if shape.experts:  # experts run one after another, each on its share of the tokens
        width = max(shape.shared_ffn, shape.ffn * shape.experts_per_token / shape.experts)
    if run.fused_mlp or run.compiled:
        gradients = element * width
    else:
        gradients = element * (3 if shape.gated_mlp else 2) * width
    work = gradients + 2 * run.stream_bytes * shape.hidden
    if run.method != "full" and "down_proj" in adapted_linears(run) and run.adapter_bytes == 4:
        work += 8 * shape.hidden  # the adapter's gradient passes fp32 on its way back
    if run.attention == "eager":
        scores = (EAGER_SCORE_BYTES[element] - eager_saved(element)) * shape.heads * run.seq_len
        work = max(work, scores + 2 * run.stream_bytes * shape.hidden)
    return work
