"""Models read from their own files: config.json, safetensors headers, GGUF headers."""

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuqueue.estimate.catalogue import find
from gpuqueue.estimate.choose import choose
from gpuqueue.estimate.estimate import estimate
from gpuqueue.estimate.model_files import Stored, UnreadableModelError, read_stored
from gpuqueue.estimate.read_gguf import read_gguf
from gpuqueue.estimate.read_model import read_directory
from gpuqueue.estimate.run import Run

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
GEMMA_3 = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 3840,
        "num_hidden_layers": 48,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 256,
        "intermediate_size": 15360,
        "vocab_size": 262208,
        "sliding_window": 1024,
        "sliding_window_pattern": 6,
        "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
    },
}
MIXTRAL = LLAMA | {"model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2}
SANTACODER = {
    "model_type": "gpt_bigcode",
    "n_embd": 2048,
    "n_layer": 24,
    "n_head": 16,
    "n_inner": 8192,
    "vocab_size": 49280,
    "multi_query": True,
    "layer_norm_epsilon": 1e-5,
    "activation_function": "gelu_pytorch_tanh",
}
DEEPSEEK = {
    "model_type": "deepseek_v2",
    "hidden_size": 2048,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "intermediate_size": 10944,
    "moe_intermediate_size": 1408,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 102400,
}


def model(path: Path, config: dict[str, Any]) -> Path:
    (path / "config.json").write_text(json.dumps(config))
    return path


def safetensors(path: Path, **shapes: tuple[int, ...]) -> None:
    """A file with bf16 tensors of these shapes, their bytes left out: only the header is read."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, shape in shapes.items():
        size = 2
        for dimension in shape:
            size *= dimension
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)


# As the models' publishers wrote them, less what has no part in a size.
PUBLISHED: dict[str, dict[str, Any]] = {
    "Llama-3.1-8B": LLAMA,
    "Gemma-3-12b": GEMMA_3,
    "Mixtral-8x7B-v0.1": MIXTRAL,
    "gpt_bigcode-santacoder": SANTACODER,
    "DeepSeek-V2-Lite": DEEPSEEK,
    "gpt2": {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024}
    | {"vocab_size": 50257, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5},
    "bloom-560m": {"model_type": "bloom", "n_embed": 1024, "n_layer": 24, "num_attention_heads": 16}
    | {"vocab_size": 250880, "layer_norm_epsilon": 1e-5},
    "falcon-7b": {"model_type": "falcon", "hidden_size": 4544, "num_attention_heads": 71, "num_hidden_layers": 32}
    | {"alibi": False, "bias": False, "multi_query": True, "new_decoder_architecture": False}
    | {"parallel_attn": True, "vocab_size": 65024, "layer_norm_epsilon": 1e-5},
    "falcon-40b": {"model_type": "falcon", "hidden_size": 8192, "num_attention_heads": 128, "num_kv_heads": 8}
    | {"num_hidden_layers": 60, "new_decoder_architecture": True, "parallel_attn": True, "vocab_size": 65024},
    "phi-2": {"model_type": "phi", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 32}
    | {"num_attention_heads": 32, "vocab_size": 51200, "hidden_act": "gelu_new", "layer_norm_eps": 1e-5},
    "pythia-1.4b": {"model_type": "gpt_neox", "hidden_size": 2048, "intermediate_size": 8192, "vocab_size": 50304}
    | {"num_hidden_layers": 24, "num_attention_heads": 16, "hidden_act": "gelu", "use_parallel_residual": True},
    "opt-125m": {"model_type": "opt", "hidden_size": 768, "ffn_dim": 3072, "num_hidden_layers": 12}
    | {"num_attention_heads": 12, "max_position_embeddings": 2048, "vocab_size": 50272, "activation_function": "relu"},
    "starcoder2-3b": {"model_type": "starcoder2", "hidden_size": 3072, "intermediate_size": 12288}
    | {"num_hidden_layers": 30, "num_attention_heads": 24, "num_key_value_heads": 2, "vocab_size": 49152}
    | {"hidden_act": "gelu_pytorch_tanh", "use_bias": True},
    "Gemma-2-9b": {"model_type": "gemma2", "hidden_size": 3584, "intermediate_size": 14336, "vocab_size": 256000}
    | {"num_hidden_layers": 42, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256}
    | {"sliding_window": 4096, "final_logit_softcapping": 30.0},
    "Gemma-3-4b": {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size": 2560}
    | {"intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}},
    "gpt-oss-20b": {"model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "head_dim": 64}
    | {"num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 201088}
    | {"num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128},
    "Qwen3-30B-A3B": {"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "head_dim": 128}
    | {"num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 151936}
    | {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "decoder_sparse_step": 1},
    "Qwen-7B": {"model_type": "qwen", "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32}
    | {"num_attention_heads": 32, "kv_channels": 128, "vocab_size": 151936, "no_bias": True},
    "SmolLM3-3B": {"model_type": "smollm3", "hidden_size": 2048, "intermediate_size": 11008, "vocab_size": 128256}
    | {"num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 4},
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_config_gives_the_shape_that_is_built_in(tmp_path: Path, name: str) -> None:
    shape, fields = read_directory(model(tmp_path, PUBLISHED[name]))
    known = find(name)
    assert fields == ({"weights": "bf16"} if "torch_dtype" in PUBLISHED[name] else {})
    assert (shape.params, shape.doubt) == (pytest.approx(known.params, rel=0.002), 0)
    for attribute in (
        *("linear_params", "kv_width", "tied", "norms", "sliding_layers", "active_ffn", "gated_mlp", "layer_norm"),
        *("parallel", "qk_norm", "soft_cap", "bigcode"),
    ):
        ours, theirs = getattr(shape, attribute), getattr(known, attribute)
        assert (ours() if callable(ours) else ours) == (theirs() if callable(theirs) else theirs), attribute


@pytest.mark.parametrize(
    ("config", "params"),
    [
        (  # GPT-J 6B
            {"model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "vocab_size": 50400},
            6_050_882_784,
        ),
        (  # GPT-Neo 1.3B
            {"model_type": "gpt_neo", "hidden_size": 2048, "num_layers": 24, "num_heads": 16, "vocab_size": 50257},
            1_315_575_808,
        ),
        (  # MPT 7B
            {"model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32, "vocab_size": 50432, "no_bias": True},
            6_649_286_656,
        ),
        (  # StableLM 3B 4E1T
            {"model_type": "stablelm", "hidden_size": 2560, "intermediate_size": 6912, "num_hidden_layers": 32}
            | {"num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 50304},
            2_795_443_200,
        ),
        (  # GLM-4 9B
            {"model_type": "chatglm", "hidden_size": 4096, "ffn_hidden_size": 13696, "num_layers": 40}
            | {"num_attention_heads": 32, "multi_query_attention": True, "multi_query_group_num": 2}
            | {"kv_channels": 128, "padded_vocab_size": 151552, "add_qkv_bias": True},
            9_399_951_360,
        ),
    ],
)
def test_a_family_is_read_in_its_own_words(tmp_path: Path, config: dict[str, Any], params: int) -> None:
    shape, _ = read_directory(model(tmp_path, config))
    assert (shape.params, shape.remarks) == (pytest.approx(params, rel=0.001), ())


SMALL_LLAMA = LLAMA | {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
SMALL_LLAMA |= {"intermediate_size": 128, "vocab_size": 1000}
SMALL_PARAMS = 2 * 1000 * 64 + 4 * 64 * 64 + 3 * 64 * 128 + 3 * 64


def test_safetensors_headers_give_the_exact_count(tmp_path: Path) -> None:
    model(tmp_path, SMALL_LLAMA)
    safetensors(tmp_path / "model-00001-of-00002.safetensors", a=(1000, 64), b=(10,))
    safetensors(tmp_path / "model-00002-of-00002.safetensors", c=(SMALL_PARAMS - 64_000,))
    assert read_stored(tmp_path) == Stored(SMALL_PARAMS + 10, 2 * SMALL_PARAMS + 20, "BF16")
    shape, fields = read_directory(tmp_path)
    assert (shape.params, shape.remarks) == (SMALL_PARAMS + 10, ())
    assert fields == {"weights": "bf16"}


def test_files_that_do_not_hold_what_the_config_says_win_and_that_is_said(tmp_path: Path) -> None:
    model(tmp_path, SMALL_LLAMA)
    safetensors(tmp_path / "model.safetensors", a=(2 * SMALL_PARAMS,))
    shape, fields = read_directory(tmp_path)
    assert fields == {"weights": "bf16", "weight_bytes": 4 * SMALL_PARAMS}
    assert shape.doubt > 0
    assert "files hold" in shape.remarks[0]


def test_only_the_files_that_would_be_loaded_count(tmp_path: Path) -> None:
    """Beside the shards of the index there may be the same weights once more, or an adapter's."""
    shards = {"a": "model-00001-of-00001.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    for name in (*shards.values(), "consolidated.safetensors", "adapter_model.safetensors"):
        safetensors(tmp_path / name, a=(10, 10))
    assert read_stored(tmp_path) == Stored(100, 200, "BF16")


def test_a_download_with_a_shard_missing_is_counted_from_the_shape(tmp_path: Path) -> None:
    model(tmp_path, LLAMA)
    safetensors(tmp_path / "model-00001-of-00002.safetensors", a=(1000, 1000))
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    shape, _ = read_directory(tmp_path)
    assert shape.params == find("Llama-3.1-8B").params


@pytest.mark.parametrize(
    ("quantisation", "weights", "group"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "gptq4", 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "gptq8", 0),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, "awq", 64),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", 128),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}, "nf4-dq", 128),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8", 128),
    ],
)
def test_a_quantised_model_says_its_format(
    tmp_path: Path, quantisation: dict[str, Any], weights: str, group: int
) -> None:
    model(tmp_path, LLAMA | {"quantization_config": quantisation})
    safetensors(tmp_path / "model.safetensors", a=(100, 100))
    _, fields = read_directory(tmp_path)
    assert fields == {"weights": weights, "group_size": group, "weight_bytes": 20_000}


def test_what_is_no_model_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnreadableModelError, match=r"config\.json is missing"):
        read_directory(tmp_path)
    with pytest.raises(UnreadableModelError, match="does not say hidden_size"):
        read_directory(model(tmp_path, {"model_type": "resnet"}))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UnreadableModelError, match="cannot be read"):
        read_directory(tmp_path)
    (tmp_path / "config.json").write_bytes(bytes(range(256)))
    with pytest.raises(UnreadableModelError, match="it is not JSON"):
        read_directory(tmp_path)
    (tmp_path / "config.json").write_text('{"a":' * 100_000)
    with pytest.raises(UnreadableModelError, match="nested too deeply"):
        read_directory(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / "config.json").unlink()
    with pytest.raises(UnreadableModelError, match="adapter's directory: name the base model"):
        read_directory(tmp_path)


def test_a_config_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8-sig")
    assert read_directory(tmp_path)[0].layers == 32


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "model.safetensors.index.json", "model.gguf"])
def test_a_pointer_of_git_lfs_is_named_as_such(tmp_path: Path, name: str) -> None:
    model(tmp_path, LLAMA)
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4976698672\n"
    (tmp_path / name).write_text(pointer)
    with pytest.raises(UnreadableModelError, match=f"{name} is a git-lfs pointer.*git lfs pull"):
        read_gguf(tmp_path / name) if name.endswith(".gguf") else read_directory(tmp_path)


@pytest.mark.parametrize("value", [0, -1, 2**40, "4096", True, 4096.5, [4096], {}])
@pytest.mark.parametrize("key", ["hidden_size", "num_attention_heads", "num_hidden_layers", "vocab_size"])
def test_a_value_that_no_model_has_is_refused_with_file_and_key(tmp_path: Path, key: str, value: Any) -> None:
    with pytest.raises(UnreadableModelError, match=rf"config\.json: {key} = .* is not what a model has"):
        read_directory(model(tmp_path, LLAMA | {key: value}))


HEADERS = [
    b"{",
    b"[]",
    b'{"a": 1}',
    b'{"a": {"dtype": "BF16", "shape": "x", "data_offsets": [0, 1]}}',
    b'{"a": {"dtype": "BF16", "shape": [1], "data_offsets": [3, 1]}}',
    b'{"a": {"shape": [1], "data_offsets": [0, 1]}}',
]


@pytest.mark.parametrize("header", HEADERS)
def test_a_damaged_safetensors_header_is_refused_by_name(tmp_path: Path, header: bytes) -> None:
    model(tmp_path, LLAMA)
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(UnreadableModelError, match=r"model\.safetensors: its safetensors header"):
        read_directory(tmp_path)


@pytest.mark.parametrize("kind, what", [("bert", "an encoder"), ("t5", "an encoder and a decoder"), ("mamba", "state")])
def test_what_is_no_decoder_is_refused_with_the_way_out(tmp_path: Path, kind: str, what: str) -> None:
    with pytest.raises(UnreadableModelError, match=f"model_type {kind} is .*{what}.*gq probe"):
        read_directory(model(tmp_path, LLAMA | {"model_type": kind}))


def test_what_the_reader_does_not_know_of_a_model_is_said(tmp_path: Path) -> None:
    def remarks(**changes: Any) -> tuple[str, ...]:
        return read_directory(model(tmp_path, LLAMA | changes))[0].remarks

    assert remarks() == ()
    (unknown,) = remarks(model_type="brandnew")
    assert unknown.startswith("model_type brandnew is not known here: counted as a decoder like Llama")
    (vision,) = remarks(vision_config={})
    assert "does not tell its size" in vision


def test_an_unknown_architecture_makes_the_interval_wider(tmp_path: Path) -> None:
    known, unknown = (
        estimate(Run(read_directory(model(tmp_path, LLAMA | {"model_type": kind}))[0])) for kind in ("llama", "new")
    )
    assert unknown.needed_mib < 0.8 * known.needed_mib
    assert unknown.occupied_low_mib < known.occupied_low_mib
    assert unknown.occupied_mib == known.occupied_mib
    assert unknown.occupied_high_mib > 1.2 * known.occupied_high_mib


@pytest.mark.parametrize(
    "config",
    [
        {"layer_types": ["linear_attention", "full_attention"]},
        {"layer_types": ["mamba"]},
        {"layers_block_type": ["recurrent", "attention"]},
        {"mamba_d_state": 16},
        {"is_encoder_decoder": True},
    ],
)
def test_what_only_other_architectures_have_is_refused_under_any_name(tmp_path: Path, config: dict[str, Any]) -> None:
    with pytest.raises(UnreadableModelError, match=r"model_type new is .*gq probe"):
        read_directory(model(tmp_path, LLAMA | {"model_type": "new"} | config))


def test_a_classifier_has_no_head_for_its_vocabulary(tmp_path: Path) -> None:
    named = {"architectures": ["LlamaForSequenceClassification"], "id2label": {"0": "a", "1": "b", "2": "c"}}
    shape, _ = read_directory(model(tmp_path, LLAMA | named))
    language_model = find("Llama-3.1-8B")
    assert shape.labels == 3
    assert shape.params == language_model.params - (128256 - 3) * 4096
    assert shape == language_model.as_classifier(3)._replace(name=shape.name, exact_params=0, max_positions=32768)
    found = estimate(Run(shape, trainer="reward"))
    assert any("head of 3 outputs" in each for each in found.assumptions)
    assert "logits and loss" not in {each.name for each in found.components}


@pytest.mark.parametrize(
    ("vision", "language", "billions"),
    [
        (  # Gemma 3 4B
            {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27},
            PUBLISHED["Gemma-3-4b"],
            4.30,
        ),
        (  # Qwen2.5-VL 7B
            {"depth": 32, "hidden_act": "silu", "hidden_size": 1280, "intermediate_size": 3420},
            {"model_type": "qwen2_5_vl", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28}
            | {"num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064},
            8.29,
        ),
        (  # LLaVA 1.5 7B, whose text_config leaves out all that Llama 2 7B has too
            {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24},
            {"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064}},
            7.06,
        ),
    ],
)
def test_a_vision_tower_counts(
    tmp_path: Path, vision: dict[str, Any], language: dict[str, Any], billions: float
) -> None:
    shape, _ = read_directory(model(tmp_path, language | {"vision_config": vision}))
    assert shape.params / 1e9 == pytest.approx(billions, rel=0.01)
    assert any("activations of images come on top" in each for each in shape.remarks)


def test_a_config_without_a_type_takes_that_of_its_files_else_one_that_is_assumed(tmp_path: Path) -> None:
    model(tmp_path, {key: value for key, value in SMALL_LLAMA.items() if key != "torch_dtype"})
    shape, fields = read_directory(tmp_path)
    assert "nothing says how they are stored" in " ".join(estimate(choose(shape, {}, fields)).assumptions)
    safetensors(tmp_path / "model.safetensors", a=(SMALL_PARAMS,))
    shape, fields = read_directory(tmp_path)
    assert fields == {"weights": "bf16"}
    assert "4 in fp32 unless dtype is set" in " ".join(estimate(choose(shape, {}, fields)).assumptions)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from([1, 2, 3, 64]) | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYS = sorted({key for config in PUBLISHED.values() for key in (*config, *config.get("text_config", {}))})
KEYS += ["text_config", "vision_config", "architectures", "quantization_config", "layer_types", "_name_or_path"]
KEYS += ["layers_block_type", "id2label", "dtype", "attn_config", "ffn_config", "interleave_moe_layer_step"]


@settings(max_examples=300)
@given(st.sampled_from(list(PUBLISHED.values())), st.dictionaries(st.sampled_from(KEYS), ANYTHING))
def test_any_config_gives_a_shape_or_one_clear_error(config: dict[str, Any], changes: dict[str, Any]) -> None:
    with TemporaryDirectory() as directory:
        try:
            shape, fields = read_directory(model(Path(directory), config | changes))
        except UnreadableModelError as error:
            assert "config.json" in str(error)
            return
    for method in ("inference", "lora"):
        assert estimate(choose(shape, {"method": method}, fields)).needed_mib > 0


@dataclass
class Gguf:
    """A GGUF file with these facts and tensors (name, dimensions, ggml type), without their data."""

    facts: dict[str, int | str | list[str]]
    tensors: list[tuple[str, tuple[int, ...], int]]

    def bytes(self) -> bytes:
        out = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.facts))
        for key, value in self.facts.items():
            out += text(key)
            if isinstance(value, int):
                out += struct.pack("<II", 4, value)
            elif isinstance(value, str):
                out += struct.pack("<I", 8) + text(value)
            else:
                out += struct.pack("<IIQ", 9, 8, len(value)) + b"".join(text(each) for each in value)
        for name, dimensions, kind in self.tensors:
            out += text(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, kind, 0)
        return out


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


SMALL = Gguf(
    {
        "general.architecture": "llama",
        "general.name": "Small",
        "llama.embedding_length": 64,
        "llama.block_count": 2,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.feed_forward_length": 256,
        "llama.context_length": 2048,
        "tokenizer.ggml.tokens": ["a", "b"],
    },
    [
        ("token_embd.weight", (64, 1000), 1),  # F16
        ("blk.0.ffn_gate.weight", (64, 256), 12),  # Q4_K: 144 B for 256
        ("blk.0.attn_q.weight", (64, 64), 8),  # Q8_0: 34 B for 32
    ],
)


def test_a_gguf_header_gives_shape_and_bytes(tmp_path: Path) -> None:
    path = tmp_path / "small.gguf"
    path.write_bytes(SMALL.bytes())
    shape, fields = read_gguf(path)
    assert (shape.name, shape.layers, shape.kv_width, shape.vocab, shape.tied) == ("Small", 2, 32, 1000, True)
    assert shape.params == 64 * 1000 + 64 * 256 + 64 * 64
    assert fields == {"weights": "gguf", "weight_bytes": 2 * 64000 + 16384 // 256 * 144 + 4096 // 32 * 34}


def test_a_gguf_file_cut_anywhere_in_its_header_is_refused(tmp_path: Path) -> None:
    whole = SMALL.bytes()
    for length in range(len(whole)):
        path = tmp_path / "cut.gguf"
        path.write_bytes(whole[:length])
        with pytest.raises(UnreadableModelError, match=r"cut\.gguf"):
            read_gguf(path)


@given(st.dictionaries(st.sampled_from(sorted(SMALL.facts)), st.integers(0, 2**32 - 1) | st.text(max_size=5)))
def test_any_fact_of_a_gguf_header_gives_a_shape_or_one_clear_error(changes: dict[str, int | str]) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "any.gguf"
        path.write_bytes(Gguf(SMALL.facts | changes, SMALL.tensors).bytes())
        try:
            shape, fields = read_gguf(path)
        except UnreadableModelError as error:
            assert "any.gguf" in str(error)
            return
    assert estimate(choose(shape, {"method": "inference"}, fields)).needed_mib > 0
