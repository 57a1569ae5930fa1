"""Inference: the key-value cache and what the prompt's pass through the model needs on top."""

from typing import NamedTuple

from gpuqueue.estimate.allocator import MIB
from gpuqueue.estimate.run import Run

LEGACY_CACHE = ((4, 36), (4, 42))  # generation passed the cache on as tuples
VLLM_ACTIVATION_TOKENS = 8192  # max_num_batched_tokens of vLLM's chunked prefill
VLLM_GRAPHS_MIB = 600  # CUDA graphs for its default batch sizes; vLLM logs what it took


class ServingBytes(NamedTuple):
    """Bytes of the cache when generation ends, and of cache and working set while the prompt passes."""

    cache: float
    prompt_cache: float
    prompt_work: float
    tables: float  # position tables that older code keeps for every layer


def serving_bytes(run: Run) -> ServingBytes:
    """ServingBytes of a run of the inference kind."""
    per_token = kv_bytes_per_token(run)
    prompt = run.prompt_len * run.sequences
    window = _window_saving(run, per_token)
    length = run.prompt_len + run.new_tokens
    cache = per_token * length * run.sequences - window
    if LEGACY_CACHE[0] <= run.transformers < LEGACY_CACHE[1]:
        cache *= 2  # the caller holds the old tuples while every layer writes its new ones
    return ServingBytes(
        cache=cache + _repeated_kv(run) * length * run.sequences,
        prompt_cache=per_token * prompt,
        prompt_work=_prompt_work(run) * prompt if run.prefill else 0.0,
        tables=_position_tables(run),
    )


def kv_bytes_per_token(run: Run) -> float:
    """2 (key, value) * layers * kv heads * head width * bytes; MLA in vLLM keeps the compressed pair."""
    shape = run.shape
    if shape.kv_lora_rank and run.method == "vllm":
        return shape.layers * (shape.kv_lora_rank + shape.rope_dim) * run.kv_bytes
    if shape.kv_lora_rank:
        return shape.layers * (shape.q_width + shape.value_width) * run.kv_bytes
    return 2 * shape.layers * shape.kv_width * run.kv_bytes


def _repeated_kv(run: Run) -> float:
    """Before 4.48 keys and values of one layer were repeated for every query head, flash attention or not."""
    shape = run.shape
    if run.transformers >= (4, 48) or shape.kv_heads == shape.heads or shape.kv_lora_rank:
        return 0.0
    return 2 * shape.q_width * run.kv_bytes


def _window_saving(run: Run, per_token: float) -> float:
    shape = run.shape
    beyond = run.prompt_len + run.new_tokens - shape.sliding_window
    if not shape.sliding_window or beyond <= 0:
        return 0.0
    return per_token * shape.sliding_layers / shape.layers * beyond * run.sequences


def _prompt_work(run: Run) -> float:
    """Bytes a token of the prompt: the MLP's three intermediates and four hidden states, or the logits
    of every prompt token with their fp32 copy where the code computes them all (Transformers < 4.45)."""
    shape, element = run.shape, run.compute_bytes
    mlp = element * (3 if shape.gated_mlp else 2) * shape.active_ffn() + 4 * element * shape.hidden
    if run.attention == "eager":
        mlp = max(mlp, (element + 6) * shape.heads * max(1, run.prompt_len))
    if run.transformers < (4, 45):
        return max(mlp, (element + 4) * shape.head_outputs + element * shape.hidden)
    return mlp


def _position_tables(run: Run) -> float:
    """Up to Transformers 4.42 every layer kept cos and sin of all positions: 2 * positions * head width."""
    if run.transformers >= (4, 43):
        return 0.0
    shape = run.shape
    return shape.layers * shape.max_positions * shape.head_dim * 2 * run.compute_bytes


def vllm_reserved(run: Run) -> int:
    """Bytes that vLLM fills whatever the model needs: its share of the card; 0 where no card was given."""
    return int(run.card_mib * run.vllm_share) * MIB


def vllm_working_set(run: Run) -> float:
    """Activations of one scheduling step and the captured CUDA graphs."""
    shape = run.shape
    tokens = min(VLLM_ACTIVATION_TOKENS, max(run.prompt_len, 2048))
    step = run.compute_bytes * tokens * (3 * shape.active_ffn() + 4 * shape.hidden)
    logits = (run.compute_bytes + 4) * shape.head_outputs * min(256, run.sequences)
    return step + logits + VLLM_GRAPHS_MIB * MIB
