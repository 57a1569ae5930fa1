"""Verdicts, the changes that make a run fit, and what a card of 32 GB holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuqueue.estimate.advise import DOES_NOT_FIT, FITS, TIGHT, WORTH_MIB, advise, verdict
from gpuqueue.estimate.budget import METHODS, MODELS, Cell, budget
from gpuqueue.estimate.catalogue import find
from gpuqueue.estimate.choose import choose
from gpuqueue.estimate.estimate import estimate
from gpuqueue.estimate.run import LOSSES, OPTIMIZERS, TRAINERS, Run

CARD_MIB = 32607


def test_the_verdict_follows_the_interval() -> None:
    found = estimate(Run(find("Qwen2.5-7B")))
    assert verdict(found, found.occupied_high_mib) == FITS
    assert verdict(found, found.occupied_high_mib - 1) == TIGHT
    assert verdict(found, found.needed_mib - 1) == DOES_NOT_FIT


def test_a_run_that_fits_needs_no_advice() -> None:
    assert advise(Run(find("Qwen2.5-0.5B")), CARD_MIB) == ()


def test_a_fused_loss_alone_is_advised_where_it_is_enough() -> None:
    (change,) = advise(Run(find("Llama-3.1-8B"), batch=4), CARD_MIB)
    assert "never writes the logits" in change.what
    assert change.verdict == FITS
    assert change.saves_mib > 8000


def test_advice_ends_in_a_run_that_fits_and_every_step_of_it_is_needed() -> None:
    run = Run(find("Qwen2.5-14B"), batch=8, checkpointing=False)
    changes = advise(run, CARD_MIB)
    assert changes[-1].verdict == FITS
    assert all(change.verdict != FITS for change in changes[:-1])
    assert all(change.saves_mib > 0 and change.costs for change in changes)
    assert estimate(changes[-1].run).occupied_mib == changes[-1].occupied_mib


def test_advice_says_when_nothing_is_enough() -> None:
    changes = advise(Run(find("Llama-3.1-70B")), CARD_MIB)
    assert changes
    assert changes[-1].verdict != FITS


def test_the_advised_qlora_is_the_one_that_the_method_means() -> None:
    changes = advise(Run(find("Qwen2.5-14B"), loss="linear"), CARD_MIB)
    assert (
        changes[-1].occupied_mib
        == estimate(choose(find("Qwen2.5-14B"), {"method": "qlora", "loss": "linear"})).occupied_mib
    )


def test_an_evaluation_that_sets_the_peak_is_what_is_advised_against() -> None:
    kept = Run(find("Llama-3.1-8B"), eval_batch=8, eval_rows=64, eval_keeps_logits=True, seq_len=512)
    changes = advise(kept, CARD_MIB)
    assert "prediction_loss_only" in changes[0].what
    wide = kept._replace(eval_keeps_logits=False, eval_batch=64)
    assert [change.what for change in advise(wide, CARD_MIB)] == ["per_device_eval_batch_size 1"]


def test_vllm_is_advised_a_share_that_starts_and_fits() -> None:
    small = Run(find("Qwen2.5-7B"), method="vllm", prompt_len=2048, card_mib=24576, gpu_memory_utilization=0.5)
    (change,) = advise(small, 24576)
    assert change.verdict == FITS
    share = float(change.what.rsplit(" ", 1)[1])
    fixed = estimate(small._replace(gpu_memory_utilization=share))
    assert fixed.starts
    assert verdict(fixed, 24576) == FITS


def test_grpo_with_vllm_on_the_card_is_advised_to_let_it_sleep() -> None:
    run = Run(find("Qwen2.5-3B"), trainer="grpo", completion_len=1024, seq_len=512, batch=8, loss="linear")
    run = run._replace(gpu_memory_utilization=0.7, card_mib=CARD_MIB)
    assert [change.what for change in advise(run, CARD_MIB)] == ["vllm_enable_sleep_mode"]


RUNS = st.builds(
    lambda shape, method, **fields: choose(find(shape), {"method": method} | fields),
    st.sampled_from(MODELS),
    st.sampled_from(("full", "lora", "qlora")),
    batch=st.integers(1, 16),
    seq_len=st.integers(64, 16384),
    grad_accumulation=st.integers(1, 8),
    checkpointing=st.booleans(),
    loss=st.sampled_from(LOSSES),
    optimizer=st.sampled_from(OPTIMIZERS),
    trainer=st.sampled_from(TRAINERS),
    eval_batch=st.integers(0, 16),
)


@given(RUNS, st.sampled_from((8192, 24576, 32607, 81920)))
def test_each_saving_is_what_a_new_estimate_gives_and_nothing_without_effect_is_advised(run: Run, card: int) -> None:
    before = estimate(run)
    for change in advise(run, card):
        after = estimate(change.run)
        assert change.saves_mib == before.occupied_mib - after.occupied_mib
        assert change.saves_mib >= WORTH_MIB or change.verdict == FITS
        assert change.verdict == verdict(after, card)
        before = after


def test_serving_is_advised_a_4_bit_model_before_a_smaller_cache() -> None:
    changes = advise(Run(find("Qwen2.5-32B"), method="inference", new_tokens=4096), CARD_MIB)
    assert "4-bit" in changes[0].what


@pytest.fixture(scope="module")
def cells() -> dict[tuple[str, str], Cell]:
    return {(cell.model, cell.method): cell for cell in budget(CARD_MIB)}


def test_the_budget_has_a_cell_for_every_model_and_method(cells: dict[tuple[str, str], Cell]) -> None:
    assert set(cells) == {(model, method) for model in MODELS for method in METHODS}


def test_a_cell_is_what_the_estimate_of_the_same_model_and_method_says(cells: dict[tuple[str, str], Cell]) -> None:
    for (model, name), cell in cells.items():
        found = estimate(choose(find(model), METHODS[name]))
        assert (cell.needed_mib, cell.occupied_mib) == (found.needed_mib, found.occupied_mib)
        assert (cell.verdict == FITS) == (cell.longest >= 2048)


def test_seven_billion_in_bf16_lora_train_on_four_rows_of_2048() -> None:
    run = Run(find("Qwen2.5-7B"), batch=4, seq_len=2048, attention="flash", loss="linear")
    assert verdict(estimate(run), CARD_MIB) == FITS


def test_fourteen_billion_in_bf16_lora_are_on_the_edge(cells: dict[tuple[str, str], Cell]) -> None:
    assert cells["Qwen2.5-14B", "LoRA"].verdict == DOES_NOT_FIT
    assert cells["Qwen2.5-14B", "LoRA fused"].verdict == TIGHT


def test_fourteen_and_thirty_two_billion_fit_in_nf4_the_latter_short(cells: dict[tuple[str, str], Cell]) -> None:
    assert cells["Qwen2.5-14B", "QLoRA"].verdict == FITS
    assert cells["Qwen2.5-32B", "QLoRA fused"].verdict == FITS
    assert 1024 <= cells["Qwen2.5-32B", "QLoRA"].longest < cells["Qwen2.5-14B", "QLoRA"].longest


def test_seventy_billion_fit_by_no_method(cells: dict[tuple[str, str], Cell]) -> None:
    assert {cell.longest for (model, _), cell in cells.items() if model == "Llama-3.1-70B"} == {0}


def test_the_longest_sequence_is_the_last_one_that_fits(cells: dict[tuple[str, str], Cell]) -> None:
    longest = cells["Qwen2.5-7B", "LoRA"].longest
    run = Run(find("Qwen2.5-7B"), seq_len=longest)
    assert verdict(estimate(run), CARD_MIB) == FITS
    assert verdict(estimate(run._replace(seq_len=longest + 256)), CARD_MIB) != FITS
