"""Bytes of weights, by the file formats' rules, against sizes that others measured."""

import pytest

from gpuqueue.estimate.allocator import MIB, block
from gpuqueue.estimate.catalogue import UnknownModelError, find, find_stored, names
from gpuqueue.estimate.choose import choose
from gpuqueue.estimate.estimate import estimate
from gpuqueue.estimate.run import FORMATS, Run
from gpuqueue.estimate.stored import UnknownFormatError
from gpuqueue.estimate.weights import SOURCES, linear_bytes, weight_bytes


@pytest.mark.parametrize(
    ("model", "packed_mib", "scales_mib"),
    [("TinyLlama-1.1B", 462.0, 57.76), ("Qwen2.5-7B", 3111.5, 388.95), ("Mistral-7B-v0.3", 3328.0, 416.01)],
)
def test_nf4_weighs_what_bitsandbytes_reports(model: str, packed_mib: float, scales_mib: float) -> None:
    """Packed weights and absmax as fitcheck-llm read them from loaded models."""
    shape = find(model)
    linear = sum(linear_bytes("nf4", i, o) * count for _, i, o, count in shape.linears())
    assert linear / MIB == pytest.approx(packed_mib + scales_mib, rel=0.001)


def test_double_quantisation_brings_nf4_near_half_a_byte() -> None:
    assert linear_bytes("nf4-dq", 4096, 4096) / 4096**2 == pytest.approx(0.5157, rel=0.001)


def test_mxfp4_packs_the_experts_only() -> None:
    """The published checkpoint of gpt-oss-20b is 13.76 GB (its model.safetensors.index.json)."""
    run = Run(find("gpt-oss-20b"), method="inference", weights="mxfp4")
    assert weight_bytes(run).resident / 1e9 == pytest.approx(13.76, rel=0.005)


def test_bitsandbytes_leaves_experts_as_they_are_since_transformers_5() -> None:
    shape = find("Qwen3-30B-A3B")
    now, before = (weight_bytes(Run(shape, method="qlora", weights="nf4", transformers=v)) for v in ((5, 0), (4, 57)))
    assert now.linear > 0.9 * 2 * shape.linear_params
    assert before.linear < 0.6 * shape.linear_params
    assert any("experts stay in 16 bit" in each for each in estimate(choose(shape, {"method": "qlora"})).assumptions)


def test_one_scale_a_column_spares_the_groups() -> None:
    assert linear_bytes("gptq4", 4096, 4096, group_size=0) < linear_bytes("gptq4", 4096, 4096, group_size=128)


@pytest.mark.parametrize("fmt", FORMATS)
def test_every_format_has_a_source(fmt: str) -> None:
    assert SOURCES[fmt]


def test_sizes_from_file_headers_are_taken_as_they_are() -> None:
    run = Run(find("Llama-3.1-8B"), method="inference", weights="gguf", weight_bytes=4_920_000_000)
    assert weight_bytes(run).resident == 4_920_000_000


def test_litgpt_keeps_a_head_of_its_own() -> None:
    shape = find("Llama-3.2-1B")
    own, tied = (weight_bytes(Run(shape, stack=stack)).embeddings for stack in ("litgpt", "hf"))
    assert own == 2 * tied


def test_large_blocks_round_to_segments_and_small_ones_to_512_bytes() -> None:
    assert block(1) == 512
    assert block(135 * MIB) == 136 * MIB  # a rest of 1 MiB is not split off
    assert block(24.5 * MIB) == 24.5 * MIB  # a rest of 1.5 MiB is


@pytest.mark.parametrize("name", names())
def test_a_shape_counts_to_its_published_parameters(name: str) -> None:
    shape = find(name)
    learned_positions = name.startswith(("gpt2", "opt"))
    assert shape.params > 0
    assert shape.counted_params() == pytest.approx(shape.params, rel=0.015 if learned_positions else 0.002)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("meta-llama/Meta-Llama-3-8B-Instruct", "Llama-3-8B"),
        ("TheBloke/Mixtral-8x7B-Instruct-v0.1-GPTQ", "Mixtral-8x7B-v0.1"),
        ("Qwen/Qwen2.5-Coder-7B-Instruct", "Qwen2.5-7B"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "Mistral-7B-v0.3"),
        ("deepseek-ai/deepseek-coder-1.3b-instruct", "deepseek-coder-1.3b"),
        ("unsloth/Llama-3.3-70B-Instruct-bnb-4bit", "Llama-3.1-70B"),
        ("stablelm-base-alpha-3b", "stablelm-base-alpha-3b"),
    ],
)
def test_a_model_is_found_by_the_name_people_write(written: str, meant: str) -> None:
    assert find(written).name == meant


def test_an_unknown_name_offers_near_ones() -> None:
    with pytest.raises(UnknownModelError, match=r"Qwen2\.5-8B.*did you mean.*Qwen2\.5-") as caught:
        find("Qwen/Qwen2.5-8B")
    assert caught.value.near


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", None),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "awq"),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "gptq4"),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", "gptq8"),
        ("unsloth/Qwen2.5-7B-Instruct-bnb-4bit", "nf4-dq"),
        ("unsloth/Qwen2.5-7B-unsloth-bnb-4bit", "nf4-dq"),
        ("Qwen/Qwen3-8B-FP8", "fp8"),
        ("Meta-Llama-3.1-8B-Instruct-FP8-dynamic", "fp8"),
        ("openai/gpt-oss-20b", "mxfp4"),
        ("unsloth/gpt-oss-20b-BF16", "bf16"),
        ("deepseek-ai/DeepSeek-R1", "fp8"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", None),
    ],
)
def test_a_name_tells_how_the_weights_are_stored(name: str, weights: str | None) -> None:
    shape, fields = find_stored(name)
    assert fields.get("weights") == weights
    assert any(f"stored in {weights}" in each for each in shape.remarks) == (weights is not None)
    assert find_stored(name, settled=True) == (find(name), {})


@pytest.mark.parametrize("suffix", ["GGUF", "4bit", "int4", "w4a16", "quantized.w8a8", "NVFP4", "exl2", "MLX-4bit"])
def test_a_name_that_says_quantised_without_saying_how_is_refused(suffix: str) -> None:
    with pytest.raises((UnknownFormatError, UnknownModelError), match=r"--weights|did you mean|config\.json"):
        find_stored(f"Llama-3.1-8B-Instruct-{suffix}")


def test_packed_experts_are_unpacked_for_training() -> None:
    shape, stored = find_stored("gpt-oss-20b")
    assert choose(shape, {"method": "inference"}, stored).weights == "mxfp4"
    run = choose(shape, {"method": "lora"}, stored)
    assert (run.method, run.weights) == ("lora", "bf16")
    assert any("unpacked from mxfp4" in each for each in run.shape.remarks)
    assert choose(shape, {"method": "qlora"}, stored).weights == "nf4-dq"
    with pytest.raises(ValueError, match="mxfp4"):
        estimate(choose(shape, {"method": "lora", "weights": "mxfp4"}, stored))
