"""What an estimate says: components that add up, effects in the right direction, published runs met."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from gpuqueue.estimate.catalogue import find
from gpuqueue.estimate.choose import choose
from gpuqueue.estimate.estimate import estimate
from gpuqueue.estimate.loss import loss_bytes
from gpuqueue.estimate.run import LOSSES, METHODS, OPTIMIZERS, Run

SAMPLE = Path(__file__).parent / "data" / "measured_sample.csv"
BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "estimate_accuracy.py"
MIB = 1 << 20
OUTSIDE_TORCH = ("CUDA context", "allocator slack")

LLAMA = find("Llama-3.1-8B")


def of(name: str, run: Run) -> int:
    """MiB of one component; 0 where the table does not show it."""
    return sum(each.bytes for each in estimate(run).components if each.name == name) // MIB


@pytest.mark.parametrize("method", METHODS)
def test_components_add_up_to_the_peak_and_what_is_occupied(method: str) -> None:
    run = Run(LLAMA, method=method, weights="nf4" if method == "qlora" else "bf16", prompt_len=1000)
    found = estimate(run)
    inside = sum(each.bytes for each in found.components if each.name not in OUTSIDE_TORCH)
    assert found.torch_peak_mib == -(-inside // MIB)
    assert found.occupied_mib == -(-sum(each.bytes for each in found.components) // MIB)
    assert found.occupied_low_mib <= found.occupied_mib <= found.occupied_high_mib
    assert found.needed_mib <= found.occupied_mib
    assert all(each.formula and each.source for each in found.components)


def test_llama_3_8b_lora_keeps_what_the_published_run_kept_after_its_step() -> None:
    """fms-acceleration measured 15.127 GiB allocated after a step of LoRA r16 on q, k, v, o in bf16."""
    run = Run(LLAMA, rank=16, targets=("q_proj", "k_proj", "v_proj", "o_proj"))
    kept = sum(of(name, run) for name in ("weights", "adapters", "optimizer", "workspace"))
    assert kept == pytest.approx(15.127 * 1024, rel=0.003)


def test_pure_bf16_adamw_takes_ten_bytes_a_parameter_in_its_step() -> None:
    """Weights, gradients, two states and the foreach temporary, 2 B each."""
    shape = find("PowerLM-3b")
    found = estimate(Run(shape, method="full", autocast=False, seq_len=512))
    assert found.phase == "optimizer step"
    assert found.torch_peak_mib * MIB / shape.params == pytest.approx(10, rel=0.01)


def test_fp32_weights_under_autocast_are_copied_while_the_forward_pass_lasts() -> None:
    run = Run(LLAMA, method="full", weights="fp32", batch=64, optimizer="sgd")
    assert estimate(run).phase == "loss"
    assert of("autocast copies", run) == pytest.approx(2 * LLAMA.params / MIB, abs=1)
    assert of("autocast copies", run._replace(autocast=False)) == 0


def test_a_fused_optimizer_spares_the_temporary() -> None:
    run = Run(LLAMA, method="full", autocast=False, seq_len=512)
    spared = estimate(run).torch_peak_mib - estimate(run._replace(optimizer="adamw_fused")).torch_peak_mib
    assert spared == pytest.approx(2 * LLAMA.params / MIB, rel=0.05)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_no_optimizer_takes_more_than_adamw(name: str) -> None:
    adamw = estimate(Run(LLAMA, method="full", autocast=False)).torch_peak_mib
    assert estimate(Run(LLAMA, method="full", autocast=False, optimizer=name)).torch_peak_mib <= adamw


def test_each_loss_takes_less_than_the_one_before() -> None:
    eager, fused, chunked, linear = (loss_bytes(Run(LLAMA, batch=4, loss=loss)) for loss in LOSSES)
    assert eager > fused > chunked > linear > 0


def test_checkpointing_trades_layers_for_one_layer() -> None:
    kept = estimate(Run(LLAMA, checkpointing=False, loss="linear"))
    stored = estimate(Run(LLAMA, checkpointing=True, loss="linear"))
    assert stored.torch_peak_mib < kept.torch_peak_mib * 0.7


def test_eager_attention_grows_with_the_square_of_the_length() -> None:
    short, long = (of("activations", Run(LLAMA, attention="eager", loss="linear", seq_len=n)) for n in (4096, 8192))
    assert 3.0 < long / short < 4.1


def test_all_experts_weigh_and_only_the_active_ones_work() -> None:
    moe = Run(find("Qwen3-30B-A3B"), loss="linear")
    dense = Run(find("Qwen3-32B"), loss="linear")
    assert of("weights", moe) == pytest.approx(30.53e9 * 2 / MIB, rel=0.01)
    assert of("activations", moe) < of("activations", dense) / 3


def test_sharding_divides_states_then_gradients_then_weights() -> None:
    run = Run(LLAMA, method="full", ranks=4, grad_accumulation=2)
    none, one, two, three = (run._replace(zero=stage) for stage in range(4))
    assert of("optimizer", one) > of("optimizer", three) * 0.9
    assert of("gradients", two) == pytest.approx(of("gradients", one) / 4, rel=0.01)
    assert of("weights", three) == pytest.approx(of("weights", none) / 4, rel=0.01)


def test_ddp_keeps_the_gradients_of_what_is_trained_in_buckets_once_more() -> None:
    for run in (Run(LLAMA, method="full", ranks=4, optimizer="sgd"), Run(LLAMA, ranks=4, grad_accumulation=2)):
        assert of("gradient buckets", run) == of("gradients", run)
        assert of("gradient buckets", run._replace(ranks=1)) == 0
        assert of("gradient buckets", run._replace(zero=1)) == 0
        assert run.method == "full" or of("gradient buckets", run) < 200  # of the adapters alone


def test_gradient_accumulation_keeps_gradients_through_the_loss() -> None:
    run = Run(LLAMA, batch=8, modules_to_save=("embed_tokens", "lm_head"))
    assert of("gradients", run) == 0
    assert of("gradients", run._replace(grad_accumulation=2)) > 2000


def test_preparing_a_4_bit_model_makes_embeddings_and_stream_fp32() -> None:
    run = Run(LLAMA, method="qlora", weights="nf4", autocast=False)
    prepared, plain = of("weights", run), of("weights", run._replace(kbit="none"))
    assert prepared - plain == pytest.approx(2 * 2 * LLAMA.embedding_params / MIB, rel=0.01)


def test_dpo_holds_both_answers_and_a_reference_only_where_all_is_trained() -> None:
    adapted, full = Run(LLAMA, trainer="dpo"), Run(LLAMA, trainer="dpo", method="full")
    assert of("logits and loss", adapted) == 2 * of("logits and loss", adapted._replace(trainer="sft"))
    assert of("reference model", adapted) == 0
    assert of("reference model", full) == of("weights", full)
    assert of("reference model", full._replace(precomputed_reference=True)) == 0


def test_a_reward_model_has_one_output_in_trl_and_a_vocabulary_beside_it_in_llamafactory() -> None:
    trl, llamafactory, sft = (
        choose(LLAMA, fields | {"batch": 4, "checkpointing": False})
        for fields in ({"trainer": "reward"}, {"trainer": "reward", "value_head": True}, {"batch": 8})
    )
    assert of("weights", sft) - of("weights", trl) == pytest.approx(2 * 128255 * 4096 / MIB, abs=1)
    assert of("weights", sft) == of("weights", llamafactory)
    assert loss_bytes(trl) < 0.1 * loss_bytes(llamafactory) < 0.06 * loss_bytes(sft)
    assert choose(LLAMA, {"trainer": "reward", "method": "inference"}).shape == LLAMA


def test_grpo_counts_the_logits_of_completions_only() -> None:
    run = Run(LLAMA, trainer="grpo", batch=4, seq_len=1000, completion_len=500)
    whole = Run(LLAMA, batch=4, seq_len=1500)
    assert of("logits and loss", run) == pytest.approx(of("logits and loss", whole) / 3, rel=0.01)


def test_evaluation_that_keeps_logits_can_set_the_peak() -> None:
    run = Run(LLAMA, eval_batch=8, eval_rows=64, eval_keeps_logits=True)
    assert estimate(run).phase == "evaluation"


def test_a_cache_costs_two_times_layers_times_kv_width_a_token() -> None:
    run = Run(LLAMA, method="inference", new_tokens=8192)
    assert of("KV cache", run) == 8192 * 2 * 32 * 1024 * 2 // MIB
    assert of("KV cache", run._replace(kv_bytes=1)) == of("KV cache", run) // 2


def test_latent_attention_caches_the_compressed_pair_in_vllm() -> None:
    run = Run(find("DeepSeek-V2-Lite"), method="vllm", new_tokens=8192)
    assert of("KV cache", run) == 8192 * 27 * (512 + 64) * 2 // MIB
    assert of("KV cache", run) < of("KV cache", run._replace(method="inference")) / 5


def test_sliding_layers_stop_caching_at_their_window() -> None:
    run = Run(find("Gemma-3-12b"), method="inference", new_tokens=32768)
    everything = Run(find("Gemma-3-12b")._replace(sliding_window=0), method="inference", new_tokens=32768)
    assert of("KV cache", run) < of("KV cache", everything) / 4


def test_vllm_fills_its_share_of_the_card() -> None:
    run = Run(LLAMA, method="vllm", card_mib=81920, gpu_memory_utilization=0.5)
    assert estimate(run).occupied_mib == 40960
    assert estimate(run).needed_mib < 20000


def test_expandable_segments_leave_less_over() -> None:
    run = Run(LLAMA, batch=4)
    assert of("allocator slack", run._replace(expandable_segments=True)) < of("allocator slack", run) / 2


def test_a_measured_context_replaces_the_default() -> None:
    run = Run(LLAMA, context_mib=141)
    assert of("CUDA context", run) == 141
    assert estimate(run).torch_peak_mib == estimate(Run(LLAMA)).torch_peak_mib


@pytest.mark.parametrize(
    "fields", [{"method": "lora2"}, {"weights": "int3"}, {"batch": 0}, {"optimizer": "adam"}, {"loss": "none"}]
)
def test_a_run_that_makes_no_sense_is_refused_by_name(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        estimate(Run(LLAMA, **fields))  # type: ignore[arg-type]


def benchmark(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), str(SAMPLE), *words], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_benchmark_meets_its_bars_on_the_sample_and_names_every_row_it_leaves_out() -> None:
    import json

    report = json.loads(benchmark("--json"))
    missed = [row for row in report["summary"] if not row.get("met", True)]
    assert missed == []
    assert report["intervals"]["held_percent"] >= 90
    assert report["intervals"]["median_width"] <= 1.45
    with SAMPLE.open(newline="") as table:
        rows = len(list(csv.DictReader(table)))
    assert report["answered"] + len(report["left_out"]) == report["rows"] == rows
    assert all(row["reason"] for row in report["left_out"])


def test_the_benchmark_prints_its_bars_for_people() -> None:
    printed = benchmark()
    assert "MISSED" not in printed
    for word in ("checkpointed", "inference quantised", "fitcheck-llm", "left out:", "sum over several GPUs"):
        assert word in printed
