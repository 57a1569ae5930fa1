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
from gpuqueue.estimate.estimate import estimate
from gpuqueue.estimate.read_gguf import read_gguf
from gpuqueue.estimate.read_model import UnreadableModelError, read_directory, read_safetensors
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


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (LLAMA, "Llama-3.1-8B"),
        (GEMMA_3, "Gemma-3-12b"),
        (MIXTRAL, "Mixtral-8x7B-v0.1"),
        (SANTACODER, "gpt_bigcode-santacoder"),
        (DEEPSEEK, "DeepSeek-V2-Lite"),
    ],
)
def test_a_config_gives_the_shape_that_is_built_in(tmp_path: Path, config: dict[str, Any], name: str) -> None:
    shape, fields = read_directory(model(tmp_path, config))
    known = find(name)
    assert fields == {"weights": "bf16"}
    assert shape.params == pytest.approx(known.params, rel=0.002)
    for attribute in ("linear_params", "kv_width", "tied", "norms", "sliding_layers", "active_ffn"):
        ours, theirs = getattr(shape, attribute), getattr(known, attribute)
        assert (ours() if callable(ours) else ours) == (theirs() if callable(theirs) else theirs), attribute


def test_safetensors_headers_give_the_exact_count(tmp_path: Path) -> None:
    model(tmp_path, LLAMA)
    safetensors(tmp_path / "model-00001-of-00002.safetensors", a=(1000, 1000), b=(10,))
    safetensors(tmp_path / "model-00002-of-00002.safetensors", c=(500, 20))
    shape, fields = read_directory(tmp_path)
    assert shape.params == 1_010_010
    assert fields == {"weights": "bf16"}
    assert read_safetensors(tmp_path / "model-00002-of-00002.safetensors") == (10_000, 20_000)


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
    (tmp_path / "x.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{")
    with pytest.raises(UnreadableModelError, match="cut off or damaged"):
        read_safetensors(tmp_path / "x.safetensors")


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
    (head,) = remarks(architectures=["LlamaForSequenceClassification"])
    assert "classification" in head
    (vision,) = remarks(vision_config={})
    assert "activations of the images" in vision


def test_falcon_and_bloom_have_two_matrices_in_their_mlp_and_one_embedding(tmp_path: Path) -> None:
    """Their configs name neither the activation nor the tie (configuration_falcon.py, configuration_bloom.py)."""
    plain = {key: value for key, value in LLAMA.items() if key not in ("hidden_act", "tie_word_embeddings")}
    for kind in ("falcon", "bloom"):
        shape, _ = read_directory(model(tmp_path, plain | {"model_type": kind}))
        assert (shape.gated_mlp, shape.tied) == (False, True)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYS = sorted({*LLAMA, *GEMMA_3["text_config"], *MIXTRAL, *SANTACODER, *DEEPSEEK})
KEYS += ["text_config", "vision_config", "architectures", "quantization_config", "layer_types", "_name_or_path"]


@settings(max_examples=300)
@given(
    st.sampled_from([LLAMA, GEMMA_3, MIXTRAL, SANTACODER, DEEPSEEK]), st.dictionaries(st.sampled_from(KEYS), ANYTHING)
)
def test_any_config_gives_a_shape_or_one_clear_error(config: dict[str, Any], changes: dict[str, Any]) -> None:
    with TemporaryDirectory() as directory:
        try:
            shape, fields = read_directory(model(Path(directory), config | changes))
        except UnreadableModelError:
            return
    assert estimate(Run(shape=shape, method="inference", **fields)).needed_mib > 0


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
    return struct.pack("<Q", len(value)) + value.encode()


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
