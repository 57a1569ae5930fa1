"""Reads a model's shape from a local directory: config.json, and exact sizes from safetensors headers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuqueue.estimate.shapes import ModelShape

HEADER_LIMIT = 100 << 20  # the safetensors format's own limit
MOST = 2**31 - 1
PLAIN_MLP = ("gelu", "relu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu2")
PLAIN_TYPES = (
    "bloom",
    "codegen",
    "falcon",
    "gpt2",
    "gpt_bigcode",
    "gpt_neo",
    "gpt_neox",
    "gptj",
    "mpt",
    "opt",
    "phi",
    "starcoder2",
)
TIED_TYPES = ("bloom", "falcon", "gemma", "gpt2", "gpt_bigcode", "gpt_neo", "mpt", "opt", "starcoder2")
# Their layers are those that this package counts; of another type it is said that it was counted like them.
DECODERS = (
    *PLAIN_TYPES,
    *("cohere", "cohere2", "deepseek_v2", "deepseek_v3", "gemma", "gemma2", "gemma3", "gemma3_text", "glm", "glm4"),
    *("granite", "internlm2", "llama", "minicpm", "ministral", "mistral", "mixtral", "olmo", "olmo2", "phi3", "qwen2"),
    *(
        "qwen2_moe",
        "qwen2_5_vl",
        "qwen2_5_vl_text",
        "qwen2_vl",
        "qwen2_vl_text",
        "qwen3",
        "qwen3_moe",
        "smollm3",
        "stablelm",
    ),
)
OTHER_KINDS = {
    "an encoder": (
        "albert",
        "bert",
        "deberta",
        "deberta-v2",
        "distilbert",
        "electra",
        "modernbert",
        "roberta",
        "xlm-roberta",
    ),
    "an encoder and a decoder": (
        "bart",
        "longt5",
        "m2m_100",
        "marian",
        "mbart",
        "mt5",
        "pegasus",
        "t5",
        "umt5",
        "whisper",
    ),
    "a state space model": (
        "bamba",
        "falcon_h1",
        "falcon_mamba",
        "jamba",
        "mamba",
        "mamba2",
        "rwkv",
        "zamba",
        "zamba2",
    ),
}
PARALLEL = ("falcon", "phi", "gptj", "cohere", "cohere2")
GATED_TYPES = ("gemma", "gemma2", "gemma3", "gemma3_text")
FORMATS = {
    "gptq": {4: "gptq4", 8: "gptq8"},
    "awq": {4: "awq"},
    "fp8": {0: "fp8"},
    "bitsandbytes": {4: "nf4", 8: "int8"},
}
DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


class UnreadableModelError(ValueError):
    """A directory or file cannot be read as a model; the text names the file and what is missing."""


def read_directory(path: Path) -> tuple[ModelShape, dict[str, Any]]:
    """The shape of the model in this directory, and Run fields that its files settle:
    weights (the stored format), weight_bytes and group_size."""
    config_path = path / "config.json"
    config = _load_json(config_path)
    if isinstance(language := config.get("text_config"), dict):  # of a vision model
        config |= language
    shape = _shape(config, config_path)
    fields = _stored_format(config)
    headers = sorted(path.glob("*.safetensors"))
    if headers and not _missing_shards(path):
        params, size = 0, 0
        for header in headers:
            count, total = read_safetensors(header)
            params, size = params + count, size + total
        if fields["weights"] in DTYPES.values():
            shape = shape._replace(exact_params=params)
        else:
            fields["weight_bytes"] = size
    return shape, fields


def _missing_shards(path: Path) -> bool:
    """Whether the index names a shard that is not there (yet): then the headers do not tell the sum."""
    index = path / "model.safetensors.index.json"
    if not index.exists():
        return False
    shards = set(_load_json(index).get("weight_map", {}).values())
    return any(not (path / shard).exists() for shard in shards)


def read_safetensors(path: Path) -> tuple[int, int]:
    """(parameters, bytes) of one safetensors file, from its header alone."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= HEADER_LIMIT:
                raise UnreadableModelError(f"{path}: not a safetensors file (header of {length} bytes)")
            header = json.loads(file.read(length))
    except OSError as error:
        raise UnreadableModelError(f"{path} cannot be read: {error.strerror}") from error
    except UnreadableModelError:
        raise
    except (ValueError, RecursionError) as error:
        raise UnreadableModelError(f"{path}: its safetensors header is cut off or damaged") from error
    params, size = 0, 0
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        elements = 1
        for dimension in tensor["shape"]:
            elements *= dimension
        start, end = tensor["data_offsets"]
        params, size = params + elements, size + end - start
    return params, size


def _load_json(path: Path) -> dict[str, Any]:
    try:
        loaded = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise UnreadableModelError(f"{path} is missing: give a directory that holds a model's config.json") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableModelError(f"{path} cannot be read: {error}") from error
    if not isinstance(loaded, dict):
        raise UnreadableModelError(f"{path} holds no mapping")
    return loaded


def _shape(config: dict[str, Any], path: Path) -> ModelShape:
    def number(*keys: str, default: int | None = None) -> int:
        for key in keys:
            if isinstance(value := config.get(key), int):
                if not (default is None) <= value <= MOST:
                    raise UnreadableModelError(f"{path}: {key} = {value} is no size that a model has")
                return int(value)
        if default is None:
            raise UnreadableModelError(f"{path} does not say {keys[0]}: is it the config of a decoder model?")
        return default

    kind = str(config.get("model_type", ""))
    for what, kinds in OTHER_KINDS.items():
        if kind in kinds:
            raise UnreadableModelError(
                f"{path}: model_type {kind} is {what}, and only decoders are counted: `gq probe` measures it"
            )
    hidden = number("hidden_size", "n_embd", "d_model")
    heads = number("num_attention_heads", "n_head")
    layers = number("num_hidden_layers", "n_layer", "num_layers")
    multi_query = bool(config.get("multi_query"))
    mla = number("kv_lora_rank", default=0)
    rope = number("qk_rope_head_dim", default=0) if mla else 0
    head_dim = number("qk_nope_head_dim", default=0) + rope if mla else number("head_dim", default=hidden // heads)
    experts = number("num_local_experts", "num_experts", "n_routed_experts", default=0)
    ffn = number("intermediate_size", "n_inner", "ffn_dim", default=4 * hidden)
    expert_ffn = number("moe_intermediate_size", default=ffn) if experts else ffn
    layer_norm = "layer_norm_epsilon" in config or "layer_norm_eps" in config
    window = number("sliding_window", default=0) if config.get("use_sliding_window", True) else 0
    gemma = kind.startswith(("gemma2", "gemma3"))
    return ModelShape(
        name=str(config.get("_name_or_path") or path.parent.name or kind),
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=1 if multi_query else number("num_key_value_heads", "num_kv_heads", "n_head_kv", default=heads),
        head_dim=head_dim,
        ffn=expert_ffn,
        vocab=number("vocab_size"),
        tied=bool(config.get("tie_word_embeddings", kind.startswith(TIED_TYPES))),
        gated_mlp=_is_gated(config, kind),
        qkv_bias=bool(config.get("attention_bias", kind.startswith("qwen2"))),
        qk_norm=kind.startswith(("qwen3", "gemma3")),
        norms=4 if gemma else 2,
        layer_norm=layer_norm,
        experts=experts,
        experts_per_token=number("num_experts_per_tok", "num_experts_per_token", default=0),
        shared_ffn=number(
            "shared_expert_intermediate_size", default=expert_ffn * number("n_shared_experts", default=0)
        ),
        dense_layers=min(layers, number("first_k_dense_replace", default=0)) if experts else 0,
        dense_ffn=ffn if experts else 0,
        kv_lora_rank=mla,
        rope_dim=rope,
        v_head_dim=number("v_head_dim", default=0) if mla else 0,
        q_lora_rank=number("q_lora_rank", default=0) if mla else 0,
        sliding_window=window,
        sliding_layers=_sliding_layers(config, kind, layers) if window else 0,
        soft_cap=bool(config.get("final_logit_softcapping")),
        parallel=kind in PARALLEL or bool(config.get("use_parallel_residual")),
        bigcode=kind == "gpt_bigcode",
        max_positions=number("max_position_embeddings", "n_positions", default=32768),
        remarks=tuple(_remarks(config, kind)),
    )


def _remarks(config: dict[str, Any], kind: str) -> Iterator[str]:
    if kind not in DECODERS:
        named = f"model_type {kind} is" if kind else "config.json has no model_type that is"
        yield f"{named} not known here: counted as a decoder like Llama, which may be far off; `gq probe` measures it"
    if "ForSequenceClassification" in str(config.get("architectures")):
        yield "counted with the head of a language model, which one for classification has not: it takes less"
    if "vision_config" in config:
        yield "only the language model is counted, with what its files hold: activations of the images come on top"


def _is_gated(config: dict[str, Any], kind: str) -> bool:
    act = str(config.get("hidden_act") or config.get("activation_function") or "silu")
    return kind in GATED_TYPES or (kind not in PLAIN_TYPES and act not in PLAIN_MLP)


def _sliding_layers(config: dict[str, Any], kind: str, layers: int) -> int:
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        return sum(1 for each in kinds if each == "sliding_attention")
    if kind == "gemma2":
        return layers // 2
    if kind.startswith("gemma3"):
        pattern = config.get("sliding_window_pattern")
        return layers - layers // (pattern if isinstance(pattern, int) and pattern > 0 else 6)
    return layers


def _stored_format(config: dict[str, Any]) -> dict[str, Any]:
    quantisation = config.get("quantization_config")
    if not isinstance(quantisation, dict):
        dtype = str(config.get("torch_dtype") or config.get("dtype") or "bfloat16").removeprefix("torch.")
        return {"weights": DTYPES.get(dtype, "bf16")}
    method = str(quantisation.get("quant_method", ""))
    bits = 4 if quantisation.get("load_in_4bit") else quantisation.get("bits", 8 if method == "bitsandbytes" else 0)
    stored = FORMATS.get(method, {}).get(bits) if isinstance(bits, int) else None
    if stored is None:
        raise UnreadableModelError(
            f"quantization_config: {method or 'a method without a name'} at {bits} bits is not known"
        )
    if stored == "nf4" and quantisation.get("bnb_4bit_use_double_quant"):
        stored = "nf4-dq"
    group = quantisation.get("group_size", 128)
    return {"weights": stored, "group_size": min(MOST, max(0, group)) if isinstance(group, int) else 128}
