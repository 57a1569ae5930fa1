"""What a config.json leaves unsaid: each model_type's own defaults, and what its code is built like.

From the configuration classes and the layers of Transformers 4.57 (configuration_*.py, modeling_*.py). A family that
is a Llama in all this needs no line of its own, only its name.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Family(NamedTuple):
    """`defaults` are keys of a config with the value that the family's class gives them; `built` are fields of a
    ModelShape that no key says. `positions`: a learned table of them, with so many rows more than positions."""

    defaults: Mapping[str, Any] = MappingProxyType({})
    built: Mapping[str, Any] = MappingProxyType({})
    positions: int | None = None


TIED = {"tie_word_embeddings": True}
PLAIN: dict[str, Any] = {"gated_mlp": False, "layer_norm": True}
BIASES: dict[str, Any] = {"qkv_bias": True, "linear_bias": True}
SIDE_BY_SIDE: dict[str, Any] = {"parallel": True, "norms": 1}
QK_NORM: dict[str, Any] = {"qk_norm": True}
ALL_TOKENS = {"use_sliding_window": False}

LIKE_LLAMA = (
    "llama mistral mixtral ministral phi3 internlm2 internlm3 baichuan aquila yi deepseek deepseek_v2 deepseek_v3 "
    "granite granitemoe helium hunyuan_v1_dense seed_oss kimi_k2"
)
FAMILIES: dict[str, Family] = {
    **dict.fromkeys(LIKE_LLAMA.split(), Family()),
    "apertus": Family(built={"gated_mlp": False} | QK_NORM),
    "arcee": Family(built={"gated_mlp": False}),
    "biogpt": Family(TIED | {"max_position_embeddings": 1024}, PLAIN | BIASES, positions=2),
    "bloom": Family(TIED, PLAIN | BIASES),
    "chatglm": Family({"add_qkv_bias": True}),
    "codegen": Family(built=PLAIN | SIDE_BY_SIDE | {"linear_bias": True}),
    "cohere": Family(TIED, SIDE_BY_SIDE | {"layer_norm": True}),
    "cohere2": Family(TIED | {"sliding_window_pattern": 4}, SIDE_BY_SIDE | {"layer_norm": True}),
    "dbrx": Family(built={"layer_norm": True}),
    "ernie4_5": Family(TIED),
    "exaone": Family(TIED),
    "exaone4": Family(built=QK_NORM),
    "falcon": Family(TIED | {"multi_query": True, "parallel_attn": True}, PLAIN),
    "gemma": Family(TIED),
    "gemma2": Family(TIED | {"sliding_window_pattern": 2, "final_logit_softcapping": 30.0}, {"norms": 4}),
    "gemma3": Family(TIED | {"sliding_window_pattern": 6}, {"norms": 4} | QK_NORM),
    "gemma3_text": Family(TIED | {"sliding_window_pattern": 6}, {"norms": 4} | QK_NORM),
    "glm": Family({"attention_bias": True}),
    "glm4": Family({"attention_bias": True}, {"norms": 4}),
    "glm4_moe": Family({"first_k_dense_replace": 1}),
    "gpt2": Family(TIED | {"n_positions": 1024}, PLAIN | BIASES, positions=0),
    "gpt_bigcode": Family(
        TIED | {"multi_query": True, "n_positions": 1024}, PLAIN | BIASES | {"bigcode": True}, positions=0
    ),
    "gpt_neo": Family(TIED | {"max_position_embeddings": 2048}, PLAIN | {"linear_bias": True}, positions=0),
    "gpt_neox": Family({"attention_bias": True, "use_parallel_residual": True}, PLAIN | {"linear_bias": True}),
    "gpt_oss": Family({"attention_bias": True, "sliding_window_pattern": 2, "sliding_window": 128}),
    "gptj": Family(built=PLAIN | SIDE_BY_SIDE | {"linear_bias": True}),
    "llama4_text": Family(built=QK_NORM),
    "minicpm": Family(TIED),
    "mpt": Family(TIED, PLAIN),
    "nemotron": Family(built=PLAIN),
    "olmo": Family(built={"layer_norm": True}),
    "olmo2": Family(built=QK_NORM),
    "olmo3": Family({"sliding_window_pattern": 4}, QK_NORM),
    "olmoe": Family(built=QK_NORM),
    "opt": Family(TIED | {"enable_bias": True, "max_position_embeddings": 2048}, PLAIN, positions=2),
    "persimmon": Family(built=PLAIN | BIASES | QK_NORM),
    "phi": Family(built=PLAIN | BIASES | SIDE_BY_SIDE),
    "phimoe": Family(built={"layer_norm": True}),
    "qwen": Family(built={"qkv_bias": True}),
    **dict.fromkeys(
        ["qwen2", "qwen2_moe", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"],
        Family(ALL_TOKENS, {"qkv_bias": True}),
    ),
    **dict.fromkeys(["qwen3", "qwen3_moe", "qwen3_vl_text", "qwen3_vl_moe_text"], Family(ALL_TOKENS, QK_NORM)),
    "smollm3": Family(TIED),
    "stablelm": Family(built={"layer_norm": True}),
    "starcoder2": Family(TIED | {"use_bias": True}, PLAIN),
    "xglm": Family(TIED, PLAIN | BIASES),
}

_SIZES = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"),
    *("intermediate_size", "vocab_size"),
)
# A text_config is written without what its class takes for granted; a config of its own is written whole.
OMITTED: dict[str, dict[str, int | None]] = {
    kind: dict(zip(_SIZES, sizes, strict=True))
    for kind, sizes in {
        "gemma": (3072, 28, 16, 16, 256, 24576, 256000),
        "gemma2": (2304, 26, 8, 4, 256, 9216, 256000),
        "gemma3_text": (2304, 26, 8, 4, 256, 9216, 262208),
        "llama": (4096, 32, 32, None, None, 11008, 32000),
        "llama4_text": (5120, 48, 40, 8, 128, 8192, 202048),
        "mistral": (4096, 32, 32, 8, None, 14336, 32000),
        "qwen2": (4096, 32, 32, 32, None, 22016, 151936),
        "qwen3": (4096, 32, 32, 32, 128, 22016, 151936),
    }.items()
}
OMITTED["gemma3_text"] |= {"sliding_window": 4096}
OMITTED["llama4_text"] |= {"num_local_experts": 16, "num_experts_per_tok": 1, "intermediate_size_mlp": 16384}

ENCODERS = (
    "albert bert big_bird camembert clip clip_text_model convbert deberta deberta-v2 distilbert electra ernie esm "
    "longformer modernbert mpnet neobert nomic_bert roberta roformer siglip vit wav2vec2 xlm-roberta xlm-roberta-xl"
)
BOTH = (
    "bart blenderbot fsmt led longt5 m2m_100 marian mbart mt5 nllb-moe pegasus prophetnet switch_transformers t5 "
    "t5gemma umt5 whisper"
)
RECURRENT = (
    "bamba falcon_h1 falcon_mamba granitemoehybrid jamba lfm2 lfm2_moe mamba mamba2 minimax minimax_m1 nemotron_h "
    "plamo2 qwen3_next recurrent_gemma retnet rwkv rwkv5 rwkv6 rwkv7 xlstm zamba zamba2"
)
NO_DECODER = {
    **dict.fromkeys(ENCODERS.split(), "an encoder"),
    **dict.fromkeys(BOTH.split(), "an encoder and a decoder"),
    **dict.fromkeys(RECURRENT.split(), "built of state space, recurrent or linear attention layers"),
}
ATTENTIONS = ("full_attention", "sliding_attention", "chunked_attention", "attention", "global", "local")
_STATE = ("ssm_cfg", "state_size", "mamba_d_state", "mamba_expand", "mamba_num_heads", "attn_layer_period")


def no_decoder(kind: str, config: dict[str, Any]) -> str | None:
    """What a model is if not a decoder of attention and MLP layers, by its model_type and by what only others have."""
    if kind in NO_DECODER:
        return NO_DECODER[kind]
    if config.get("is_encoder_decoder") is True:
        return NO_DECODER["t5"]
    layers = config.get("layer_types") or config.get("layers_block_type") or ()
    others = [each for each in layers if each not in ATTENTIONS] if isinstance(layers, list) else []
    if others or any(config.get(key) for key in _STATE):
        return NO_DECODER["mamba"]
    return None
