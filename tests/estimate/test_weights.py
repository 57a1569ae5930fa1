"""Bytes of weights, by the file formats' rules, against sizes that others measured."""

import pytest

from gpuqueue.estimate.allocator import MIB, block
from gpuqueue.estimate.catalogue import UnknownModelError, find, names
from gpuqueue.estimate.run import FORMATS, Run
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
