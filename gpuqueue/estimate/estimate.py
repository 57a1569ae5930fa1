"""Puts an estimate together: the phases of a run, the one in which it peaks, and what the card will show."""

from typing import NamedTuple

from gpuqueue.estimate import assumptions
from gpuqueue.estimate.allocator import KERNELS_MIB, MIB
from gpuqueue.estimate.layers import layer_bytes
from gpuqueue.estimate.loss import logit_copies, loss_bytes
from gpuqueue.estimate.occupancy import SOURCE as SLACK
from gpuqueue.estimate.occupancy import Leftover, Transients, leftover
from gpuqueue.estimate.run import Run
from gpuqueue.estimate.serving import kv_bytes_per_token, serving_bytes, vllm_reserved, vllm_working_set
from gpuqueue.estimate.states import StateBytes, state_bytes
from gpuqueue.estimate.weights import SOURCES, WeightBytes, weight_bytes

STEP = "optimizer step"
NEEDED_MARGIN = 0.02  # of the peak: its usual error, so that `needed` is a lower bound


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


class _Phase(NamedTuple):
    name: str
    gradients: float = 0.0
    activations: float = 0.0
    logits: float = 0.0
    scratch: float = 0.0
    cache: float = 0.0
    load: float = 0.0
    casts: float = 0.0

    @property
    def total(self) -> float:
        return sum(self[1:])  # every field but the name


def estimate(run: Run) -> Estimate:
    """The run's memory on one card. Formulas and their sources stand at the functions that are called.

    Raises ValueError where the run makes no sense."""
    run.check()
    weights = weight_bytes(run)
    states = state_bytes(run) if run.trains else StateBytes(0, 0, 0, 0, 0, 0)
    phases = _training_phases(run, states) if run.trains else _serving_phases(run, weights)
    peak = max(phases, key=lambda phase: phase.total)
    components = _components(run, weights, states, peak)
    torch_peak = sum(component.bytes for component in components)
    context = run.context_mib * MIB
    cached = leftover(run, torch_peak, _transients(run, states, peak) if run.trains else Transients())
    occupied = _occupied(run, torch_peak + context, cached)
    components += (
        Component("CUDA context", context, *_context_told(run)),
        Component("allocator slack", occupied[1] - torch_peak - context, "blocks that the peak cannot reuse", SLACK),
    )
    low, usual, high = (_mib(value) for value in occupied)
    needed_mib = _mib((1 - NEEDED_MARGIN) * torch_peak + context)
    return Estimate(
        components=components,
        phase=peak.name,
        torch_peak_mib=_mib(torch_peak),
        needed_mib=needed_mib,
        occupied_mib=usual,
        occupied_low_mib=min(max(low, needed_mib), usual),  # nobody occupies less than the least it can run in
        occupied_high_mib=high,
        assumptions=assumptions.of(run),
    )


def _mib(size: float) -> int:
    return -(-int(size) // MIB)


def _occupied(run: Run, needed: int, cached: Leftover) -> tuple[int, int, int]:
    low, usual, high = (needed + int(extra) for extra in (cached.low, cached.usual, cached.high))
    if run.method == "vllm" and run.card_mib:
        usual = max(usual, vllm_reserved(run))
        return min(low, usual), usual, max(high, usual)
    return low, usual, high


def _transients(run: Run, states: StateBytes, peak: _Phase) -> Transients:
    tokens, layer = run.tokens, layer_bytes(run)
    written = run.loss in ("eager", "fused")
    return Transients(
        layer=tokens * (layer.saved + layer.work if run.checkpointing else layer.work),
        loss=run.loss_tokens * loss_bytes(run),
        logits=4.0 * run.loss_tokens * run.shape.vocab if written else 0.0,
        activations=tokens * _kept(run),
        step=states.gradients + states.scratch,
        peaks_in_step=peak.name == STEP,
    )


def _kept(run: Run) -> float:
    """Bytes a token that all layers together keep from the forward to the backward pass."""
    layer = layer_bytes(run)
    if run.checkpointing:
        return layer.store * run.shape.layers
    return layer.saved * run.shape.layers - layer.unsaved


def _training_phases(run: Run, states: StateBytes) -> list[_Phase]:
    """Loss, both ends of the backward pass, the optimizer's step: the peak is in one of them.

    With checkpointing one layer is alive at a time beside the stored inputs of all; loss and layer
    are not alive together, so the larger of the two counts (Chen et al., arXiv 1604.06174).
    """
    tokens, kept_of_all = run.tokens, _kept(run)
    layer = layer_bytes(run)
    kept = layer.store if run.checkpointing else layer.saved
    one = layer.saved + layer.work if run.checkpointing else layer.work
    before = states.gradients if run.grad_accumulation > 1 else 0.0
    forward, backward = _autocast_copies(run)
    return [
        _Phase("loss", before, tokens * kept_of_all, run.loss_tokens * loss_bytes(run), casts=forward),
        _Phase(
            "backward of the last layer", before or states.head_gradient, tokens * (kept_of_all + one), casts=backward
        ),
        _Phase("backward of the first layer", states.gradients, tokens * (kept + one)),
        _Phase(STEP, states.gradients, scratch=states.scratch),
        *_evaluation(run),
        *_rollout(run),
    ]


def _autocast_copies(run: Run) -> tuple[float, float]:
    """(in the forward, in the backward pass) bytes of fp32 weights' copies in the compute type. Autocast caches
    those of trained weights while the forward pass lasts; the graph keeps any without checkpointing."""
    if run.weights != "fp32" or not run.autocast or run.compute == "fp32":
        return 0.0, 0.0
    copies = 2.0 * run.shape.params
    kept = 0.0 if run.checkpointing else copies
    return (copies if run.method == "full" else kept), kept


def _evaluation(run: Run) -> list[_Phase]:
    if not run.eval_batch:
        return []
    shape = run.shape
    rows = run.eval_batch * run.seq_len
    held = 4.0 * shape.vocab * run.seq_len * run.eval_rows if run.eval_keeps_logits else 0.0
    work = run.compute_bytes * rows * (3 * shape.active_ffn() + 4 * shape.hidden)
    logits = (run.compute_bytes + 8) * shape.vocab * rows + held
    return [_Phase("evaluation", activations=max(0.0, work - logits), logits=logits)]


def _rollout(run: Run) -> list[_Phase]:
    """GRPO lets the model write its completions before it learns from them: their cache is alive then."""
    if run.trainer != "grpo":
        return []
    tokens = run.batch * (run.seq_len + run.completion_len)
    return [_Phase("generation of completions", cache=kv_bytes_per_token(run) * tokens)]


def _serving_phases(run: Run, weights: WeightBytes) -> list[_Phase]:
    serving = serving_bytes(run)
    if run.method == "vllm":
        return [_Phase("serving", activations=vllm_working_set(run), cache=serving.cache)]
    return [
        _Phase("loading", load=weights.load_copy),
        _Phase("prompt", activations=serving.prompt_work + serving.tables, cache=serving.prompt_cache),
        _Phase("generation", activations=serving.tables, cache=serving.cache),
    ]


def _components(run: Run, weights: WeightBytes, states: StateBytes, peak: _Phase) -> tuple[Component, ...]:
    share = run.ranks if run.zero >= 3 else 1
    resident = 0.0 if run.offload_weights else weights.resident / share
    gathered = 0.0
    if share > 1 or run.offload_weights:
        largest = max(i * o for _, i, o, _ in run.shape.linears())
        gathered = 4.0 * max(largest, run.shape.embedding_params)
    reference = weights.resident / share if run.keeps_reference else 0.0
    copies = logit_copies(run) if run.trains else 0.0
    found = [
        Component("weights", int(resident), f"{run.weights}, {run.shape.params:,} parameters", SOURCES[run.weights]),
        Component("reference model", int(reference), "the weights once more", "TRL: ref_model"),
        Component("gathered weights", int(gathered), "4 B * largest tensor", "DeepSpeed ZeRO-3 estimator"),
        Component("load copy", int(peak.load), "2 B * vocabulary * hidden", "head loaded beside a tied embedding"),
        Component("autocast copies", int(peak.casts), "2 B * parameters", "torch.autocast: weight cache"),
        Component("adapters", int(states.adapters), f"{run.adapter_bytes} B * rank * (in + out)", "PEFT"),
        Component("gradients", int(peak.gradients), "as wide as what is trained", "torch.autograd"),
        Component("optimizer", int(states.optimizer + peak.scratch), run.optimizer, "torch.optim, bitsandbytes"),
        Component(
            "activations",
            int(peak.activations),
            _activation_formula(run),
            "counted tensors, docs/estimate.md",
        ),
        Component("logits and loss", int(peak.logits), f"{copies:g} B * tokens * vocabulary", "counted tensors"),
        Component("KV cache", int(peak.cache), "2 * layers * kv heads * head width * bytes * tokens", "shape"),
        Component("workspace", _workspace(run), "a cuBLAS workspace a thread", "PyTorch CUDABlas.cpp"),
    ]
    return tuple(component for component in found if component.bytes or component.name == "weights")


def _activation_formula(run: Run) -> str:
    if not run.trains:
        return "the prompt's pass: MLP intermediates and hidden states, or logits"
    layer = layer_bytes(run)
    if not run.checkpointing:
        return f"{run.tokens} tokens * {run.shape.layers} layers * {layer.saved:.0f} B"
    return (
        f"{run.tokens} tokens * {run.shape.layers} layers * {layer.store:.0f} B stored"
        f" (+ one layer at {layer.saved + layer.work:.0f} B in its backward pass)"
    )


def _workspace(run: Run) -> int:
    threads = 2 if run.trains else 1  # the backward pass has a thread of its own
    return threads * run.workspace_mib * MIB


def _context_told(run: Run) -> tuple[str, str]:
    """(formula, source)"""
    if run.context_source == "given":
        return "as given", "--context"
    formula = f"{run.context_mib - KERNELS_MIB} MiB + {KERNELS_MIB} MiB of kernels that PyTorch loads"
    if run.context_source == "measured":
        return formula, "the first measured on this node by gpuqueued init, the second a published figure"
    return formula, "published figures: gpuqueued init has not measured this node"
