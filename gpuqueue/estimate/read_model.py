"""Reads a model's shape from a local directory: config.json, and exact sizes from safetensors headers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuqueue.estimate.families import FAMILIES, OMITTED, Family, no_decoder
from gpuqueue.estimate.model_files import Stored, UnreadableModelError, load_json, read_stored
from gpuqueue.estimate.shapes import ModelShape
from gpuqueue.estimate.stored import DTYPES, by_config

MOST = 2**31 - 1
LANGUAGE = ("text_config", "llm_config", "language_config")  # of a model that sees or hears as well
PLAIN_MLP = ("gelu", "relu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu2")
BIASES = ("use_bias", "bias", "enable_bias", "mlp_bias")
QKV_BIASES = ("attention_bias", "use_qkv_bias", "qkv_bias", "add_qkv_bias", "use_bias", "bias", "enable_bias")
CLASSIFIERS = ("ForSequenceClassification", "ForTokenClassification", "ForRewardModel")
AGREE = 0.03  # the files and the shape's own count, where the shape is understood
DOUBT_OF_LAYERS, DOUBT_OF_ALL = 0.1, 0.3  # of the estimate, where a model_type is unknown: with its files, without


class _Config:
    """A config.json: its own values over the defaults of its family, each under any of the names it is known by."""

    def __init__(self, values: dict[str, Any], family: Family, path: Path) -> None:
        self.values, self.path = {**family.defaults, **values}, path

    def get(self, *keys: str) -> Any:
        return next((self.values[key] for key in keys if self.values.get(key) is not None), None)

    def yes(self, *keys: str) -> bool:
        return any(self.values.get(key) is True for key in keys)

    def size(self, *keys: str) -> int:
        """A number without which there is no model. Raises UnreadableModelError."""
        found = self.number(*keys, default=-1, least=1)
        if found < 0:
            raise UnreadableModelError(f"{self.path} does not say {keys[0]}: is it the config of a decoder model?")
        return found

    def number(self, *keys: str, default: int = 0, least: int = 0) -> int:
        """A whole number, or the default where no key is set. Raises UnreadableModelError."""
        key = next((key for key in keys if self.values.get(key) is not None), None)
        if key is None:
            return default
        value = self.values[key]
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST:
            shown = repr(value) if len(repr(value)) <= 40 else repr(value)[:40] + "..."
            raise UnreadableModelError(
                f"{self.path}: {key} = {shown} is not what a model has: a whole number from {least} to {MOST}"
            )
        return value


def read_directory(path: Path) -> tuple[ModelShape, dict[str, Any]]:
    """The shape of the model in this directory, and Run fields that its files settle:
    weights (the stored format), weight_bytes and group_size."""
    whole, where = _load(path), path / "config.json"
    values, remarks = _language(whole)
    kind = str(values.get("model_type") or "")
    what = no_decoder(kind, values)
    if what:
        raise UnreadableModelError(
            f"{where}: model_type {kind or 'without a name'} is {what}; only decoders with attention in every layer "
            "are counted: `gq probe` measures it"
        )
    config = _Config(values, FAMILIES.get(kind, Family()), where)
    stored = read_stored(path)
    fields, assumed = by_config(values, stored, str(where))
    shape = _shape(config, kind, str(values.get("_name_or_path") or where.absolute().parent.name or kind))
    shape, of_vision = _with_vision(shape, whole, where)
    remarks += [*_unknown(kind, stored), *of_vision, *assumed]
    if stored and fields.get("weights", "bf16") in DTYPES.values():
        counted, exact = shape.counted_params(), shape._replace(exact_params=stored.params)
        if abs(counted - stored.params) > AGREE * stored.params:
            remarks.append(
                f"the model's files hold {stored.params / 1e9:.2f} B parameters, its config read as it is here gives "
                f"{counted / 1e9:.2f} B: the files count for the weights, all else may be off; `gq probe` measures it"
            )
            exact = exact._replace(doubt=max(shape.doubt, DOUBT_OF_LAYERS))
            fields["weight_bytes"] = stored.size
        shape = exact
    elif stored:
        fields["weight_bytes"] = stored.size
    if kind not in FAMILIES:
        shape = shape._replace(doubt=DOUBT_OF_LAYERS if stored else DOUBT_OF_ALL)
    return shape._replace(remarks=tuple(remarks)), fields


def _load(path: Path) -> dict[str, Any]:
    try:
        return load_json(path / "config.json")
    except FileNotFoundError:
        what = "give a directory that holds a model's config.json"
        if (path / "adapter_config.json").exists():
            what = "this is an adapter's directory: name the base model, which adapter_config.json names"
        raise UnreadableModelError(f"{path / 'config.json'} is missing: {what}") from None


def _language(whole: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The values of the language model, which stand in a mapping of their own where the model sees or hears too, and
    what had to be assumed of those that are left out there."""
    inner = next((whole[key] for key in LANGUAGE if isinstance(whole.get(key), dict)), None)
    if inner is None:
        parts = [whole[key] for key in ("attn_config", "ffn_config") if isinstance(whole.get(key), dict)]
        return {name: value for part in (*parts, whole) for name, value in part.items()}, []
    values = {key: value for key, value in whole.items() if value is not None} | inner
    kind = str(values.get("model_type") or "")
    kind = {"gemma3": "gemma3_text", "llama4": "llama4_text"}.get(kind, kind)
    omitted = {key: value for key, value in OMITTED.get(kind, {}).items() if key not in values and value is not None}
    remarks = []
    if omitted:
        told = ", ".join(f"{key} {value}" for key, value in omitted.items())
        remarks.append(f"text_config leaves out what {kind} takes for granted: {told}")
    return omitted | values | {"model_type": kind}, remarks


def _shape(config: _Config, kind: str, name: str) -> ModelShape:
    hidden = config.size("hidden_size", "n_embd", "d_model", "n_embed")
    heads = config.size("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")
    layers = config.size("num_hidden_layers", "n_layer", "num_layers", "n_layers")
    if heads > hidden:
        raise UnreadableModelError(f"{config.path}: {heads} attention heads do not fit hidden_size {hidden}")
    built = _built(config, kind)
    mla = config.number("kv_lora_rank")
    rope = config.number("qk_rope_head_dim") if mla else 0
    width = config.number("qk_nope_head_dim") + rope if mla else 0
    positions = config.number("max_position_embeddings", "n_positions", "max_seq_len", default=32768)
    table = FAMILIES.get(kind, Family()).positions
    mlp = _mlp(config, kind, hidden, layers)
    window, sliding = _window(config, layers)
    return ModelShape(
        name=name,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=_kv_heads(config, heads),
        head_dim=width or config.number("head_dim", "kv_channels", default=hidden // heads, least=1),
        vocab=config.size("vocab_size", "padded_vocab_size"),
        tied=config.yes("tie_word_embeddings"),
        soft_cap=bool(config.get("final_logit_softcapping")),
        sliding_window=window,
        sliding_layers=sliding,
        kv_lora_rank=mla,
        rope_dim=rope,
        v_head_dim=config.number("v_head_dim") if mla else 0,
        q_lora_rank=config.number("q_lora_rank") if mla else 0,
        max_positions=positions,
        extra_params=0 if table is None else (positions + table) * hidden,
        labels=_labels(config),
        **mlp,
        **built,
    )


def _built(config: _Config, kind: str) -> dict[str, Any]:
    """The fields of a ModelShape that tell of norms, biases and order, from the family or, of an unknown one, by what
    its config looks like."""
    found: dict[str, Any] = {
        "qkv_bias": config.yes(*QKV_BIASES),
        "linear_bias": config.yes(*BIASES),
        "qk_norm": config.yes("use_qk_norm", "qk_layernorm"),
        "parallel": config.yes("use_parallel_residual", "parallel_attn", "new_decoder_architecture"),
    }
    if kind not in FAMILIES:
        act = config.get("hidden_act", "activation_function", "hidden_activation")
        found["gated_mlp"] = act not in PLAIN_MLP
        found["layer_norm"] = config.get("layer_norm_epsilon", "layer_norm_eps") is not None
    elif kind == "stablelm":
        found["norms"] = 1 if found["parallel"] else 2
    elif kind == "falcon":
        separate = config.yes("new_decoder_architecture") and config.get("num_ln_in_parallel_attn") != 1
        found["norms"] = 2 if separate or not found["parallel"] else 1
    return {**found, **FAMILIES.get(kind, Family()).built}


def _kv_heads(config: _Config, heads: int) -> int:
    grouped = config.yes("new_decoder_architecture")
    if config.yes("multi_query") and not grouped:
        return 1
    if config.get("multi_query_attention") is False:
        return heads
    keys = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "kv_n_heads", "multi_query_group_num")
    return config.number(*keys, default=heads, least=1)


def _mlp(config: _Config, kind: str, hidden: int, layers: int) -> dict[str, Any]:
    """The fields of a ModelShape that tell of MLPs and experts."""
    keys = ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim")
    ffn = config.number(*keys, default=config.number("expansion_ratio", default=4, least=1) * hidden, least=1)
    if kind == "qwen":  # the first Qwen names the width of gate and up projection together
        ffn = max(1, ffn // 2)
    experts = config.number("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    if not experts:
        return {"ffn": ffn}
    expert_ffn = config.number("moe_intermediate_size", default=ffn, least=1)
    shared = config.number("shared_expert_intermediate_size", default=expert_ffn * config.number("n_shared_experts"))
    step = config.number("interleave_moe_layer_step", "decoder_sparse_step", default=1, least=1)
    only = config.get("mlp_only_layers")
    dense = config.number("first_k_dense_replace") + layers - layers // step
    return {
        "ffn": expert_ffn,
        "experts": experts,
        "experts_per_token": config.number("num_experts_per_tok", "num_experts_per_token", "moe_top_k", default=1),
        "shared_ffn": expert_ffn if kind == "llama4_text" else shared,
        "dense_layers": min(layers, dense + (len(only) if isinstance(only, list) else 0)),
        "dense_ffn": config.number("intermediate_size_mlp", default=ffn, least=1),
    }


def _window(config: _Config, layers: int) -> tuple[int, int]:
    """(tokens that a sliding layer looks back, how many layers do)"""
    window = 0 if config.get("use_sliding_window") is False else config.number("sliding_window")
    if not window:
        return 0, 0
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        return window, min(layers, sum(1 for each in kinds if each == "sliding_attention"))
    pattern = config.number("sliding_window_pattern", default=0)
    return window, layers - layers // pattern if pattern else layers


def _labels(config: _Config) -> int:
    """Outputs of a classification head; 0 where the model has one for its vocabulary."""
    named = config.get("architectures")
    if not isinstance(named, list) or not any(str(each).endswith(CLASSIFIERS) for each in named):
        return 0
    if any(str(each).endswith("ForRewardModel") for each in named):
        return 1
    labels = config.get("id2label")
    return len(labels) if isinstance(labels, dict) and labels else config.number("num_labels", default=2, least=1)


def _unknown(kind: str, stored: Stored | None) -> Iterator[str]:
    if kind not in FAMILIES:
        named = f"model_type {kind} is" if kind else "config.json has no model_type that is"
        weights = "its files say what its weights take, the rest" if stored else "it"
        yield f"{named} not known here: counted as a decoder like Llama. {weights} may be off; `gq probe` measures it"


def _with_vision(shape: ModelShape, whole: dict[str, Any], path: Path) -> tuple[ModelShape, list[str]]:
    """The shape with its vision tower's parameters, and what is said of it."""
    tower = whole.get("vision_config")
    if tower is None:
        return shape, []
    found = _Config(tower if isinstance(tower, dict) else {}, Family(), path)
    width = found.number("embed_dim") or found.number("hidden_size")
    depth = found.number("depth", "num_hidden_layers")
    ffn = found.number("intermediate_size", default=4 * width)
    images = "activations of images come on top"
    if not width or not depth:
        return shape, [f"vision tower: its config does not tell its size, weights count as far as files do; {images}"]
    matrices = 3 if found.get("hidden_act") == "silu" else 2
    params = depth * (4 * width * width + matrices * width * ffn) + width * shape.hidden
    told = f"vision tower of about {params / 1e9:.2f} B parameters: counted with the weights; {images}"
    return shape._replace(extra_params=shape.extra_params + params), [told]
