"""From choices to a run: what follows, what is taken unasked, what has no effect; and that more of anything that fills
memory never takes less of it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuqueue.estimate.catalogue import find
from gpuqueue.estimate.choose import choose, unused
from gpuqueue.estimate.estimate import MIB, RULES, estimate
from gpuqueue.estimate.run import ATTENTIONS, FORMATS, LOSSES, OPTIMIZERS, PLAIN, TRAINERS, Run

QWEN = find("Qwen2.5-0.5B")
LLAMA = find("Llama-3.1-8B")


def test_qlora_alone_means_one_format_and_one_preparation() -> None:
    run = choose(LLAMA, {"method": "qlora"})
    assert (run.weights, run.kbit) == ("nf4-dq", "trl")
    assert choose(LLAMA, {"method": "qlora", "weights": "int8"}).weights == "int8"


@pytest.mark.parametrize("weights", [name for name in FORMATS if name not in (*PLAIN, "gguf", "mxfp4")])
def test_an_adapter_on_quantised_weights_is_qlora(weights: str) -> None:
    assert choose(LLAMA, {"method": "lora", "weights": weights}).method == "qlora"


def test_the_size_in_the_files_counts_only_while_the_format_is_theirs() -> None:
    stored = {"weights": "bf16", "weight_bytes": 123456}
    assert choose(LLAMA, {"method": "lora"}, stored).weight_bytes == 123456
    assert choose(LLAMA, {"method": "qlora"}, stored).weight_bytes == 0


def test_without_mixed_precision_all_is_computed_as_it_is_stored() -> None:
    assert choose(LLAMA, {"weights": "fp32", "autocast": False}).compute == "fp32"
    assert choose(LLAMA, {"weights": "fp32", "autocast": True}).compute == "bf16"
    served = choose(LLAMA, {"method": "inference", "weights": "fp32"})
    assert (served.compute, served.kv_bytes) == ("fp32", 4)


@pytest.mark.parametrize("method", ["inference", "vllm"])
def test_serving_without_a_length_has_one_and_says_so(method: str) -> None:
    run = choose(LLAMA, {"method": method})
    assert run.prompt_len == 2048
    assert "1 sequence of 2048 tokens in the cache" in estimate(run).assumptions
    assert choose(LLAMA, {"method": method, "new_tokens": 5}).prompt_len == 0


def test_completions_without_a_length_are_as_long_as_trls() -> None:
    run = choose(LLAMA, {"trainer": "grpo"})
    assert "1 completion of 256 tokens" in estimate(run).assumptions[0]


def test_what_has_no_effect_is_named_with_what_it_belongs_to() -> None:
    names = ("rank", "batch", "prompt_len", "kbit", "gpu_memory_utilization", "completion_len")
    assert [name for name, _ in unused(Run(LLAMA, method="full"), names)] == [
        "rank",
        "completion_len",
        "prompt_len",
        "kbit",
        "gpu_memory_utilization",
    ]
    assert [name for name, _ in unused(Run(LLAMA, method="vllm"), names)] == [
        "batch",
        "rank",
        "completion_len",
        "kbit",
    ]


CHOICES = st.fixed_dictionaries(
    {
        "method": st.sampled_from(("full", "lora", "qlora")),
        "batch": st.integers(1, 32),
        "seq_len": st.integers(1, 16384),
        "rank": st.integers(1, 256),
        "grad_accumulation": st.integers(1, 16),
        "checkpointing": st.booleans(),
        "loss": st.sampled_from(LOSSES),
        "optimizer": st.sampled_from(OPTIMIZERS),
        "attention": st.sampled_from(ATTENTIONS),
        "trainer": st.sampled_from(TRAINERS),
        "completion_len": st.integers(1, 1024),
        "eval_batch": st.integers(0, 8),
        "ranks": st.integers(2, 8),
        "zero": st.integers(0, 3),
        "autocast": st.booleans(),
        "dropout": st.booleans(),
        "gpu_memory_utilization": st.sampled_from((0.0, 0.3)),
        "card_mib": st.sampled_from((0, 24576)),
        "vllm_sleeps": st.booleans(),
        "modules_to_save": st.sampled_from(((), ("lm_head",))),
    }
)


@given(CHOICES, st.sampled_from(("batch", "seq_len", "rank", "grad_accumulation", "eval_batch", "completion_len")))
def test_more_of_what_fills_memory_never_needs_less(chosen: dict[str, object], field: str) -> None:
    run = choose(QWEN, chosen)
    less, more = estimate(run), estimate(run._replace(**{field: 2 * getattr(run, field) + 1}))
    assert less.needed_mib <= more.needed_mib
    assert less.occupied_mib <= more.occupied_mib + 1  # rounding
    assert less.occupied_high_mib <= more.occupied_high_mib + 1


@given(CHOICES)
def test_more_cards_never_need_more_of_each(chosen: dict[str, object]) -> None:
    run = choose(QWEN, chosen)
    assert estimate(run).needed_mib >= estimate(run._replace(ranks=2 * run.ranks)).needed_mib


@given(CHOICES)
def test_every_explained_number_can_be_worked_out_by_hand(chosen: dict[str, object]) -> None:
    for component in estimate(choose(QWEN, chosen)).components:
        if component.name in (*RULES, "adapters", "optimizer", "gathered weights"):
            assert worked_out(component.formula) == pytest.approx(component.bytes, rel=2e-3, abs=1), component


def test_the_explained_numbers_of_serving_can_be_worked_out_too() -> None:
    for method in ("inference", "vllm"):
        for component in estimate(choose(LLAMA, {"method": method, "new_tokens": 100, "sequences": 3})).components:
            if component.name in RULES:
                assert worked_out(component.formula) == pytest.approx(component.bytes, rel=2e-3, abs=1), component


def worked_out(formula: str) -> float:
    """The arithmetic in a formula, without its words."""
    return float(eval(re.sub(r"[A-Za-z_',]+", "", formula.partition(":")[0])))


# GRPO with vLLM on the same card -------------------------------------------------------------------

GRPO = Run(LLAMA, trainer="grpo", batch=4, seq_len=512, completion_len=512, card_mib=81920)


def share(run: Run) -> int:
    return sum(each.bytes for each in estimate(run).components if each.name == "vLLM's share") // MIB


def test_vllm_beside_grpo_fills_its_share_of_the_card() -> None:
    colocated = GRPO._replace(gpu_memory_utilization=0.3)
    assert share(GRPO) == 0
    assert share(colocated) == 81920 * 3 // 10
    more = estimate(colocated).needed_mib - estimate(GRPO).needed_mib
    assert more == pytest.approx(0.98 * share(colocated), abs=2)
    assert estimate(colocated).starts


def test_a_vllm_that_sleeps_is_alive_while_completions_are_written() -> None:
    asleep = GRPO._replace(gpu_memory_utilization=0.3, vllm_sleeps=True)
    assert estimate(asleep).phase == "generation of completions"
    assert share(asleep) == 81920 * 3 // 10
    assert estimate(asleep).needed_mib < estimate(asleep._replace(vllm_sleeps=False)).needed_mib


def test_a_share_below_vllms_own_copy_of_the_weights_does_not_start() -> None:
    found = estimate(GRPO._replace(gpu_memory_utilization=0.1))
    assert not found.starts
    assert found.share_mib == 8192
    assert found.share_needs_mib > 15000


def test_the_completions_of_all_accumulation_steps_are_written_at_once() -> None:
    assert GRPO._replace(grad_accumulation=4).rollout_tokens == 4 * 4 * 1024
    assert GRPO._replace(grad_accumulation=4, steps_per_generation=1).rollout_tokens == 4 * 1024
    told = " ".join(estimate(GRPO._replace(grad_accumulation=4)).assumptions)
    assert "every batch is 4 completions of 512 tokens, each after a prompt of 512" in told
    assert "completions written at once: 16" in told


def test_grpo_has_no_reference_model_unless_it_asks_for_one() -> None:
    full = GRPO._replace(method="full")
    assert not full.keeps_reference
    assert full._replace(reference_model=True).keeps_reference
    assert full._replace(trainer="dpo").keeps_reference
