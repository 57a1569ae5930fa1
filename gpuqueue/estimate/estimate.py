"""Puts an estimate together: the phases of a run, the one in which it peaks, and what the card will show."""

from typing import NamedTuple

from gpuqueue.estimate import assumptions
from gpuqueue.estimate.allocator import KERNELS_MIB, MIB
from gpuqueue.estimate.layers import layer_bytes
from gpuqueue.estimate.loss import hidden_bytes as loss_hidden
from gpuqueue.estimate.loss import logit_copies, loss_bytes
from gpuqueue.estimate.occupancy import SOURCE as SLACK
from gpuqueue.estimate.occupancy import Transients, leftover
from gpuqueue.estimate.run import Run
from gpuqueue.estimate.serving import (
    VLLM_GRAPHS_MIB,
    kv_bytes_per_token,
    serving_bytes,
    vllm_reserved,
    vllm_working_set,
)
from gpuqueue.estimate.states import StateBytes, adapter_params, saved_module_params, state_bytes
from gpuqueue.estimate.weights import SOURCES, WeightBytes, weight_bytes

STEP = "optimizer step"
EVALUATION = "evaluation"
ROLLOUT = "generation of completions"
NEEDED_MARGIN = 0.02  # of the peak: its usual error, so that `needed` is a lower bound

GRADIENTS, ACTIVATIONS, LOGITS, SCRATCH = "gradients", "activations", "logits and loss", "optimizer scratch"
BUCKETS, CACHE, LOAD, CASTS, SHARE = "gradient buckets", "KV cache", "load copy", "autocast copies", "vLLM's share"
RULES = {  # of the components that belong to a moment: what they are by, and whose rule that is
    GRADIENTS: "as wide as what is trained: torch.autograd",
    BUCKETS: "torch DDP: a second copy, unless gradient_as_bucket_view",
    ACTIVATIONS: "counted tensors, docs/estimate.md",
    LOGITS: "counted tensors, docs/estimate.md",
    SCRATCH: "torch.optim: temporary lists of one step",
    CACHE: "2 * layers * kv heads * head width * bytes a token; less beyond a sliding window",
    LOAD: "2 B * vocabulary * hidden: head loaded beside a tied embedding",
    CASTS: "torch.autocast: weight cache",
    SHARE: "vLLM: gpu_memory_utilization of the whole card, whatever it needs",
}


class Component(NamedTuple):
    """One line of the table: how many bytes at the peak, by which formula, from which source."""

    name: str
    bytes: int
    formula: str = ""
    source: str = ""


class Estimate(NamedTuple):
    """Whole MiB. `components` without context and slack add up to `torch_peak_mib`."""

    components: tuple[Component, ...]
    phase: str  # in which the peak falls
    torch_peak_mib: int  # torch.cuda.max_memory_allocated()
    needed_mib: int  # a lower bound: with less than this the run dies
    occupied_mib: int  # what nvidia-smi will show, most likely
    occupied_low_mib: int
    occupied_high_mib: int
    assumptions: tuple[str, ...]
    share_mib: int = 0  # of the card, which vLLM fills whatever it needs; 0 where there is none
    share_needs_mib: int = 0  # what has to fit into that share

    @property
    def starts(self) -> bool:
        """False: vLLM would refuse its share as too small."""
        return not self.share_mib or self.share_needs_mib <= self.share_mib


class _Part(NamedTuple):
    """Bytes with the numbers that they are the result of: "2,048 tokens * 28 layers * 7,168 B"."""

    bytes: float
    formula: str


class _Phase(NamedTuple):
    """A moment of the run: what is alive then beside what always is, by the component's name."""

    name: str
    parts: dict[str, _Part]

    @property
    def total(self) -> float:
        return sum(part.bytes for part in self.parts.values())


NOTHING = _Part(0.0, "")


def estimate(run: Run) -> Estimate:
    """The run's memory on one card. Formulas and their sources stand at the functions that are called.

    Raises ValueError where the run makes no sense."""
    run.check()
    weights = weight_bytes(run)
    states = state_bytes(run) if run.trains else StateBytes(0, 0, 0, 0, 0, 0)
    engine = _engine(run)
    phases = _training_phases(run, states, engine) if run.trains else _serving_phases(run, weights)
    peak = max(phases, key=lambda phase: phase.total)
    components = _components(run, weights, states, peak)
    torch_peak = sum(component.bytes for component in components)
    context = run.context_mib * MIB
    doubt = run.shape.doubt * torch_peak
    needed_mib = _mib((1 - NEEDED_MARGIN) * torch_peak - doubt + context)
    share_mib = vllm_reserved(run) // MIB
    share_needs_mib = needed_mib if run.method == "vllm" else _mib((1 - NEEDED_MARGIN) * engine.needs)
    fixed = peak.parts.get(SHARE, NOTHING).bytes
    above_step = peak.total - max((phase.total for phase in phases if phase.name == STEP), default=0.0)
    cached = leftover(
        run, torch_peak - int(fixed), _transients(run, states, above_step) if run.trains else Transients()
    )
    extras = (cached.low - doubt, cached.usual, cached.high + doubt)
    occupied = [torch_peak + context + int(extra) for extra in extras]
    left_over = ("allocator slack", "blocks that the peak cannot reuse", SLACK)
    if run.method == "vllm" and share_needs_mib <= share_mib:
        occupied = [share_mib * MIB, share_mib * MIB, (share_mib + VLLM_GRAPHS_MIB) * MIB]  # graphs come on top
        left_over = ("free KV cache", "what is left of the share", RULES[SHARE])
    name, *told = left_over
    components += (
        Component("CUDA context", context, *_context_told(run)),
        Component(name, occupied[1] - torch_peak - context, *told),
    )
    low, usual, high = (_mib(value) for value in occupied)
    return Estimate(
        components=components,
        phase=peak.name,
        torch_peak_mib=_mib(torch_peak),
        needed_mib=needed_mib,
        occupied_mib=usual,
        occupied_low_mib=min(max(low, needed_mib), usual),  # nobody occupies less than the least it can run in
        occupied_high_mib=high,
        assumptions=assumptions.of(run),
        share_mib=share_mib,
        share_needs_mib=share_needs_mib if share_mib else 0,
    )


def _mib(size: float) -> int:
    return -(-int(size) // MIB)


def _transients(run: Run, states: StateBytes, above_step: float) -> Transients:
    tokens, layer = run.tokens, layer_bytes(run)
    written = run.loss in ("eager", "fused")
    return Transients(
        layer=tokens * (layer.saved + layer.work if run.checkpointing else layer.work),
        loss=run.loss_tokens * loss_bytes(run),
        logits=4.0 * run.loss_tokens * run.shape.head_outputs if written else 0.0,
        activations=tokens * _kept(run) if run.checkpointing else 0.0,
        step=states.gradients + states.scratch,
        above_step=above_step,
    )


def _kept(run: Run) -> float:
    """Bytes a token that all layers together keep from the forward to the backward pass."""
    layer = layer_bytes(run)
    if run.checkpointing:
        return layer.store * run.shape.layers
    return layer.saved * run.shape.layers - layer.unsaved


def _training_phases(run: Run, states: StateBytes, engine: "_Engine") -> list[_Phase]:
    """Loss, both ends of the backward pass, the optimizer's step: the peak is in one of them.

    With checkpointing one layer is alive at a time beside the stored inputs of all; loss and layer
    are not alive together, so the larger of the two counts (Chen et al., arXiv 1604.06174).
    """
    kept, one, all_kept = _layers(run)
    gradients = _of_trained(states, states.gradients)
    before = gradients if run.grad_accumulation > 1 else NOTHING
    head = _Part(states.head_gradient, f"{states.head_gradient:,.0f} B: the head's")
    forward, backward = _autocast_copies(run)
    scratch = _of_trained(states, states.scratch)
    per_token = f"{logit_copies(run):g} B * {run.shape.head_outputs:,} + {loss_hidden(run):,.0f} B"
    loss = _Part(run.loss_tokens * loss_bytes(run), f"{run.loss_tokens:,} tokens * ({per_token})")
    last = max(before, head, key=lambda part: part.bytes)  # a head's gradient is whole before cards share it
    phases = [
        _Phase("loss", {GRADIENTS: before, ACTIVATIONS: _per_token(run, all_kept), LOGITS: loss, CASTS: forward}),
        _Phase(
            "backward of the last layer",
            {GRADIENTS: last, ACTIVATIONS: _per_token(run, all_kept, one), CASTS: backward},
        ),
        _Phase("backward of the first layer", {GRADIENTS: gradients, ACTIVATIONS: _per_token(run, kept, one)}),
        _Phase(STEP, {GRADIENTS: gradients, SCRATCH: scratch}),
        *_evaluation(run),
    ]
    if not run.vllm_sleeps:
        phases = [phase._replace(parts=phase.parts | {SHARE: engine.share}) for phase in phases]
    return [*phases, *_rollout(run, engine)]


def _layers(run: Run) -> tuple[_Part, _Part, _Part]:
    """Bytes a token: what one layer keeps, what it takes on top in its backward pass, what all layers keep."""
    layer, count = layer_bytes(run), run.shape.layers
    if run.checkpointing:
        store, one = layer.store, layer.saved + layer.work
        all_kept = _Part(_kept(run), f"{count} layers * {store:,.1f} B")
        return _Part(store, f"{store:,.1f} B"), _Part(one, f"{one:,.1f} B"), all_kept
    spared = f" - {layer.unsaved:,.1f} B" if layer.unsaved else ""
    all_kept = _Part(_kept(run), f"{count} layers * {layer.saved:,.1f} B{spared}")
    return _Part(layer.saved, f"{layer.saved:,.1f} B"), _Part(layer.work, f"{layer.work:,.1f} B"), all_kept


def _of_trained(states: StateBytes, size: float) -> _Part:
    """What belongs to the trained parameters, as bytes of each: less than its width where cards share it."""
    return _Part(size, f"{states.trained:,} parameters * {size / states.trained:,.6g} B")


def _per_token(run: Run, *parts: _Part) -> _Part:
    told = " + ".join(part.formula for part in parts)
    return _Part(run.tokens * sum(part.bytes for part in parts), f"{run.tokens:,} tokens * ({told})")


def _autocast_copies(run: Run) -> tuple[_Part, _Part]:
    """In the forward and in the backward pass: fp32 weights' copies in the compute type. Autocast caches those of
    trained weights while the forward pass lasts; the graph keeps any without checkpointing."""
    if run.weights != "fp32" or not run.autocast or run.compute == "fp32":
        return NOTHING, NOTHING
    copies = _Part(2.0 * run.shape.params, f"2 B * {run.shape.params:,} parameters")
    kept = NOTHING if run.checkpointing else copies
    return (copies if run.method == "full" else kept), kept


def _evaluation(run: Run) -> list[_Phase]:
    if not run.eval_batch:
        return []
    shape = run.shape
    rows = run.eval_batch * run.seq_len
    held = run.seq_len * run.eval_rows if run.eval_keeps_logits else 0
    copies = run.compute_bytes + 8  # the model's own, an fp32 copy and its log-probabilities
    logits = float(shape.head_outputs * (copies * rows + 4 * held))
    told = f"{shape.head_outputs:,} * ({copies} B * {rows:,} tokens + 4 B * {held:,} tokens kept)"
    work = run.compute_bytes * (3 * shape.active_ffn() + 4 * shape.hidden)
    beyond = max(0.0, float(work * rows) - logits)
    parts = {LOGITS: _Part(logits, told), ACTIVATIONS: _Part(beyond, f"{rows:,} tokens * {work:,} B - {logits:,.0f} B")}
    return [_Phase(EVALUATION, parts)]


class _Engine(NamedTuple):
    """vLLM in the process of a GRPO trainer: what it fills, and what it needs for itself."""

    share: _Part
    needs: float


def _engine(run: Run) -> _Engine:
    """Its weights are a 16-bit copy of its own, its share is of the whole card (TRL: vllm_mode="colocate")."""
    if not run.vllm_share or not run.trains:
        return _Engine(NOTHING, 0.0)
    own = run._replace(method="vllm", weights="bf16", weight_bytes=0, prompt_len=run.seq_len)
    cache = kv_bytes_per_token(own) * run.rollout_tokens
    needs = weight_bytes(own).resident + cache + vllm_working_set(own)
    reserved = vllm_reserved(run)
    if not reserved:
        return _Engine(_Part(needs, f"{needs:,.0f} B: what it needs"), needs)
    return _Engine(_Part(reserved, f"{run.vllm_share:g} * {run.card_mib * MIB:,} B of the card"), needs)


def _rollout(run: Run, engine: _Engine) -> list[_Phase]:
    """GRPO lets the model write its completions before it learns from them: their cache is alive then."""
    if run.trainer != "grpo":
        return []
    if run.vllm_share:
        return [_Phase(ROLLOUT, {SHARE: engine.share})]
    per_token = kv_bytes_per_token(run)
    told = f"{run.rollout_tokens:,} tokens * {per_token:,.0f} B"
    return [_Phase(ROLLOUT, {CACHE: _Part(per_token * run.rollout_tokens, told)})]


def _serving_phases(run: Run, weights: WeightBytes) -> list[_Phase]:
    serving = serving_bytes(run)
    cache = _tokens(serving.cache, (run.prompt_len + run.new_tokens) * run.sequences)
    if run.method == "vllm":
        work = vllm_working_set(run)
        return [_Phase("serving", {ACTIVATIONS: _Part(work, f"{work:,.0f} B"), CACHE: cache})]
    work = serving.prompt_work + serving.tables
    prompt = {
        ACTIVATIONS: _tokens(work, run.prompt_len * run.sequences),
        CACHE: _tokens(serving.prompt_cache, run.prompt_len * run.sequences),
    }
    return [
        _Phase("loading", {LOAD: _Part(weights.load_copy, f"{weights.load_copy:,} B")}),
        _Phase("prompt", prompt),
        _Phase("generation", {ACTIVATIONS: _Part(serving.tables, f"{serving.tables:,.0f} B"), CACHE: cache}),
    ]


def _tokens(size: float, tokens: int) -> _Part:
    return _Part(size, f"{tokens:,} tokens * {size / max(1, tokens):,.1f} B")


def _components(run: Run, weights: WeightBytes, states: StateBytes, peak: _Phase) -> tuple[Component, ...]:
    share = run.ranks if run.zero >= 3 else 1
    resident = 0.0 if run.offload_weights else weights.resident / share
    gathered = 0.0
    if share > 1 or run.offload_weights:
        largest = max(i * o for _, i, o, _ in run.shape.linears())
        gathered = 4.0 * max(largest, run.shape.embedding_params)
    reference = weights.resident / share if run.keeps_reference else 0.0
    optimizer = _of_trained(states, states.optimizer).formula if states.optimizer else ""
    buckets = _of_trained(states, states.buckets).formula if states.buckets else ""
    found = [
        Component("weights", int(resident), f"{run.weights}, {run.shape.params:,} parameters", SOURCES[run.weights]),
        Component("reference model", int(reference), "the weights once more", "TRL: ref_model"),
        Component("gathered weights", int(gathered), f"4 B * {int(gathered) // 4:,}", "DeepSpeed ZeRO-3 estimator"),
        Component("adapters", int(states.adapters), _adapters(run) if states.adapters else "", "PEFT"),
        Component("optimizer", int(states.optimizer), optimizer, f"{run.optimizer}: torch.optim, bitsandbytes"),
        Component(BUCKETS, int(states.buckets), buckets, RULES[BUCKETS]),
        *(Component(name, int(part.bytes), part.formula, RULES[name]) for name, part in peak.parts.items()),
        Component("workspace", _workspace(run), f"{_threads(run)} * {run.workspace_mib} MiB", "PyTorch CUDABlas.cpp"),
    ]
    return tuple(component for component in found if component.bytes or component.name == "weights")


def _adapters(run: Run) -> str:
    copies = saved_module_params(run)
    whole = f" + {copies:,} * {2 if run.weights != 'fp32' else 4} B of whole modules" if copies else ""
    return f"{adapter_params(run):,} parameters * {run.adapter_bytes} B{whole}"


def _threads(run: Run) -> int:
    return 2 if run.trains else 1  # the backward pass has a thread of its own


def _workspace(run: Run) -> int:
    return _threads(run) * run.workspace_mib * MIB


def _context_told(run: Run) -> tuple[str, str]:
    """(formula, source)"""
    if run.context_source == "given":
        return "as given", "--context"
    formula = f"{run.context_mib - KERNELS_MIB} MiB + {KERNELS_MIB} MiB of kernels that PyTorch loads"
    if run.context_source == "measured":
        return formula, "the first measured on this node by gpuqueued init, the second a published figure"
    return formula, "published figures: gpuqueued init has not measured this node"
