"""What training adds to the weights: adapters, gradients, optimizer states and the optimizer's scratch."""

from typing import NamedTuple

from gpuqueue.estimate.run import Run

ALIASES = {
    "q": "q_proj",
    "k": "k_proj",
    "v": "v_proj",
    "o": "o_proj",
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "proj": "o_proj",
    "out_proj": "o_proj",
    "dense": "o_proj",
    "c_proj": "o_proj",
    "gate": "gate_proj",
    "up": "up_proj",
    "down": "down_proj",
    "w1": "gate_proj",
    "w2": "up_proj",
    "w3": "up_proj",
    "fc1": "up_proj",
    "fc2": "down_proj",
    "dense_h_to_4h": "up_proj",
    "dense_4h_to_h": "down_proj",
}
FUSED = {
    "c_attn": ("q_proj", "k_proj", "v_proj"),
    "query_key_value": ("q_proj", "k_proj", "v_proj"),
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "Wqkv": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "mlp": ("gate_proj", "up_proj", "down_proj"),
}
ALL_LINEAR = ("all-linear", "all", "all linear")
HEADS = ("lm_head", "head", "output", "embed_out")
EMBEDDINGS = ("embed_tokens", "wte", "embed_in", "emb")


class StateBytes(NamedTuple):
    """Bytes on one card of everything that exists because something is trained."""

    trained: int  # parameters, not bytes
    adapters: float
    gradients: float
    optimizer: float
    scratch: float  # alive during the optimizer's step only
    head_gradient: float  # of the gradients, what exists as soon as the loss has run back
    buckets: float = 0.0  # in which DDP keeps the gradients a second time


def adapted_linears(run: Run) -> dict[str, tuple[int, int, int]]:
    """Name -> (inputs, outputs, times a token passes it) of the linears of one layer that LoRA adapts."""
    shape = run.shape
    wanted = expand_targets(run.targets)
    sizes = {name: (i, o, 1) for name, (i, o) in shape.attention_linears().items()}
    for name, (i, o) in shape.mlp_linears(shape.ffn).items():
        sizes[name] = (i, o, shape.experts_per_token or 1)
    if wanted is None:
        return sizes
    return {name: size for name, size in sizes.items() if name in wanted}


def expand_targets(targets: tuple[str, ...]) -> set[str] | None:
    """Our names of the linears that these target modules mean; None means all of them."""
    wanted: set[str] = set()
    for target in targets:
        last = target.rsplit(".", 1)[-1]
        if last in ALL_LINEAR:
            return None
        wanted.update(FUSED.get(last, (ALIASES.get(last, last),)))
    return wanted


def absent_targets(run: Run) -> tuple[str, ...]:
    """Target modules that this model has none of; PEFT passes over them as long as it finds any."""
    own = {name for name, _, _, _ in run.shape.linears()} | {*HEADS, *EMBEDDINGS}
    meant = ((target, expand_targets((target,))) for target in run.targets)
    return tuple(target for target, names in meant if names is not None and not names & own)


def check_targets(run: Run) -> None:
    """Raises ValueError where an adapter would find nothing to adapt."""
    if run.method != "full" and run.adapter == "lora" and len(absent_targets(run)) == len(run.targets):
        own = dict.fromkeys(name for name, _, _, _ in run.shape.linears())
        raise ValueError(f"targets {', '.join(run.targets) or 'none'}: {run.shape.name} has {', '.join(own)}")


def adapter_params(run: Run) -> int:
    """Trained parameters of the LoRA pairs, those of head and embeddings included where they are targets."""
    shape = run.shape
    if run.adapter != "lora":
        return _llama_adapter_params(run)
    wanted = expand_targets(run.targets)
    total = 0
    for name, inputs, outputs, count in shape.linears():
        if wanted is None or name in wanted:
            total += run.rank * (inputs + outputs) * count
    tables = sum(1 for target in run.targets if target in (*HEADS, *EMBEDDINGS))
    return total + tables * run.rank * (shape.hidden + shape.vocab)


def _llama_adapter_params(run: Run) -> int:
    """A prompt of 10 and a gate a head from the third layer on; in version 2 also norms, and a scale and a
    bias for every output of every linear (litgpt: adapter.py, adapter_v2.py)."""
    shape = run.shape
    prompts = (shape.layers - 2) * (10 * shape.hidden + shape.heads)
    if run.adapter == "llama_adapter":
        return prompts
    outputs = sum(out * count for _, _, out, count in shape.linears()) + shape.vocab
    return prompts + 2 * outputs + shape.other_params


def saved_module_params(run: Run) -> int:
    """Parameters of modules_to_save: PEFT trains a full copy of each."""
    names = run.modules_to_save
    heads = sum(1 for name in names if name in HEADS)
    embeddings = sum(1 for name in names if name in EMBEDDINGS)
    return (heads + embeddings) * run.shape.embedding_params


def state_bytes(run: Run) -> StateBytes:
    """StateBytes of this run on one card, ZeRO or FSDP shards taken into account."""
    if run.method == "full":
        return _full(run)
    check_targets(run)
    pairs, copies = adapter_params(run), saved_module_params(run)
    copy_bytes = 2 if run.weights != "fp32" else 4
    weights = run.adapter_bytes * pairs + copy_bytes * copies
    states, scratch = optimizer_bytes(run, run.adapter_bytes)
    copy_states, copy_scratch = optimizer_bytes(run, copy_bytes)
    share = run.ranks if run.zero >= 1 else 1
    gradient_share = run.ranks if run.zero >= 2 else 1
    return StateBytes(
        trained=pairs + copies,
        adapters=weights,
        gradients=weights / gradient_share,
        optimizer=(states * pairs + copy_states * copies) / share * (0 if run.offload_optimizer else 1),
        scratch=(scratch * pairs + copy_scratch * copies) / share,
        head_gradient=copy_bytes * copies,
        buckets=weights if _in_buckets(run) else 0.0,
    )


def _full(run: Run) -> StateBytes:
    shape = run.shape
    params = shape.params + (shape.embedding_params if run.stack == "litgpt" and shape.tied else 0)
    width = 4 if run.weights == "fp32" else 2
    states, scratch = optimizer_bytes(run, width)
    if run.zero and width == 2:
        states, scratch = states * 2 + 4, 4  # DeepSpeed and FSDP keep states and a master copy in fp32
    share = run.ranks if run.zero >= 1 else 1
    gradients = width * params / (run.ranks if run.zero >= 2 else 1)
    if run.optimizer_in_backward:
        largest = max(i * o for _, i, o, _ in shape.linears())
        gradients, scratch = width * max(largest, shape.embedding_params), 0
    wide_states = 0.0
    if "8bit" in run.optimizer:  # Trainer and bitsandbytes keep the embedding's states in fp32
        wide_states = (8 - states) * shape.embedding_params
    return StateBytes(
        trained=params,
        adapters=0,
        gradients=gradients,
        optimizer=(states * params + wide_states) / share * (0 if run.offload_optimizer else 1),
        scratch=scratch * params / share,
        head_gradient=min(gradients, width * shape.head_outputs * shape.hidden),
        buckets=width * params if _in_buckets(run) else 0.0,
    )


def _in_buckets(run: Run) -> bool:
    """DDP copies gradients into buckets to reduce them, unless gradient_as_bucket_view makes them one, which Trainer
    leaves off; ZeRO and FSDP are no DDP (torch.nn.parallel.DistributedDataParallel)."""
    return run.ranks > 1 and not run.zero


def optimizer_bytes(run: Run, width: int) -> tuple[float, float]:
    """(state, scratch of one step) in bytes a trained parameter that is `width` bytes wide.

    torch's AdamW by foreach makes one temporary list as large as the parameters; fused makes none.
    8-bit states: a byte each and an fp32 scale for 256 of them (bitsandbytes blockwise).
    """
    wide = run.state_bytes or width
    eight = 1 + 4 / 256
    match run.optimizer:
        case "adamw":
            return 2 * wide, width
        case "adamw_fused" | "paged_adamw":
            return 2 * wide, 0
        case "adamw_8bit" | "paged_adamw_8bit":
            return 2 * eight, 0
        case "adafactor":
            return 0.01 * wide, width  # a row and a column for each matrix; the update is a full copy
        case "sgd":
            return 0, 0
        case "sgd_momentum":
            return wide, 0
        case "lion":
            return wide, width
        case "lion_8bit":
            return eight, 0
        case "muon":
            return 1.2 * wide, width  # momentum for matrices, Adam for embeddings and norms
    raise ValueError(f"no optimizer {run.optimizer!r}")
