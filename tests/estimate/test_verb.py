"""`gq estimate` as people run it: a process, its output, its exit status, its time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gpuqueue
import gq

ROOMS = os.pathsep.join({str(Path(next(iter(room.__path__))).parent) for room in (gpuqueue, gq)})
CONFIGS = Path(__file__).parent / "configs"
GQ = [sys.executable, "-c", "from gq.main import main; main()", "estimate"]
HEAVY = ("torch", "transformers", "numpy", "yaml", "sqlmodel", "fastapi", "pydantic")


def environ(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": ROOMS} | more


def estimate(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*GQ, *words], capture_output=True, text=True, env=environ(), timeout=60)


def told(*words: str) -> dict[str, object]:
    done = estimate(*words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_the_table_has_needed_and_occupied_apart_and_a_verdict_for_every_limit() -> None:
    done = estimate("Qwen2.5-7B", "--batch", "4", "--card", "32607M", "--card", "81920M", "--quota", "24G")
    assert done.returncode == 0
    for word in ("weights", "adapters", "optimizer", "activations", "logits and loss", "CUDA context", "slack"):
        assert word in done.stdout
    assert "needed" in done.stdout
    assert "will occupy" in done.stdout
    assert "fits the card of 80.0 GiB" in done.stdout
    assert "does not fit: quota of 24.0 GiB" in done.stdout
    assert "costs:" in done.stdout


def test_explain_adds_formula_and_source() -> None:
    plain, explained = estimate("Qwen2.5-7B").stdout, estimate("Qwen2.5-7B", "--explain").stdout
    assert "2,048 tokens * (28 layers * 7,168.0 B)" in explained
    assert "[counted tensors" in explained
    assert "28 layers" not in plain


def test_json_says_the_same_as_the_table() -> None:
    found = told("Qwen2.5-7B", "--method", "qlora", "--card", "24G")
    assert found["weights"] == "nf4-dq"
    assert found["needed_mib"] <= found["occupied_low_mib"] <= found["occupied_mib"] <= found["occupied_high_mib"]  # type: ignore[operator]
    assert found["verdicts"] == [{"of": "card of 24.0 GiB", "limit_mib": 24576, "verdict": "fits"}]
    components = found["components"]
    assert isinstance(components, list)
    assert sum(each["mib"] for each in components) == pytest.approx(found["occupied_mib"], abs=len(components))


def test_the_command_line_wins_over_the_file() -> None:
    config = str(CONFIGS / "llamafactory_lora_sft.yaml")
    read, changed = told("--from", config), told("--from", config, "--batch", "1", "--loss", "linear")
    assert "per_device_train_batch_size = 2 -> batch 2" in read["read"]  # type: ignore[operator]
    assert changed["torch_peak_mib"] < read["torch_peak_mib"]  # type: ignore[operator]


def test_an_accelerate_file_needs_a_model_beside_it() -> None:
    config = str(CONFIGS / "accelerate_zero2.yaml")
    assert estimate("--from", config).returncode == 2
    assert told("Qwen2.5-3B", "--method", "full", "--from", config)["phase"] == "optimizer step"


def test_a_directory_is_a_model(tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8}
    (tmp_path / "config.json").write_text(json.dumps(config | {"vocab_size": 1000, "intermediate_size": 1024}))
    assert told(str(tmp_path), "--method", "inference")["params"] == pytest.approx(11.5e6, rel=0.05)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("Qwen2.5-8B",), "did you mean Qwen2.5-"),
        ((), "say which model"),
        (("Qwen2.5-7B", "--card", "huge"), "'huge' is not a size"),
        (("Qwen2.5-7B", "--weights", "int3"), "'--weights': 'int3' is not one of"),
        (("Qwen2.5-7B", "--from", "nowhere.yaml"), "nowhere.yaml cannot be read"),
        (("nowhere.gguf",), "nowhere.gguf"),
        (("Qwen2.5-7B", "--batch", "0"), "'-b' / '--batch': 0 is not in the range x>=1"),
        (("Qwen2.5-7B", "--seq", "-5"), "'--seq': -5"),
        (("Qwen2.5-7B", "--batch", "9" * 30), "--batch must be at least 1 and at most"),
        (("Qwen2.5-7B", "--ranks", "0"), "'--ranks': 0"),
        (("Qwen2.5-7B", "--utilization", "1.5"), "'--utilization': 1.5"),
        (("Qwen2.5-7B", "--method", "full", "--rank", "4"), "--rank has no effect on full: it belongs to LoRA"),
        (("Qwen2.5-7B", "--method", "vllm", "--batch", "2"), "--batch has no effect on vllm"),
        (("Qwen2.5-7B", "--prompt", "100"), "--prompt has no effect on lora: it belongs to inference"),
        (("Qwen2.5-7B", "--utilization", "0.5"), "--utilization has no effect on lora: it belongs to vLLM"),
        (("Qwen2.5-7B", "--trainer", "dpo", "--completion", "5"), "--completion has no effect on lora (dpo)"),
        (("Qwen2.5-7B", "--zero", "3"), "--zero shards over several cards: say how many with --ranks"),
        (("Qwen2.5-7B", "--method", "inference", "--liger"), "--liger has no effect on inference"),
        (("Qwen2.5-7B", "--method", "vllm", "--attention", "eager"), "--attention has no effect on vllm"),
        (("Qwen2.5-7B", "--kbit", "peft"), "--kbit has no effect on lora"),
        (("Qwen2.5-7B", "--method", "qlora", "--weights", "fp32"), "--method 'qlora' trains on quantised weights"),
        (("Qwen2.5-7B", "--method", "full", "--weights", "nf4"), "--method 'full' cannot train weights in nf4"),
        (("Qwen2.5-7B", "--targets", "nothing"), "--targets nothing: Qwen2.5-7B has q_proj"),
        (("Qwen2.5-7B", "--optimizer", "galore_adamw"), "--optimizer 'galore_adamw' is not one whose memory is known"),
        (("Qwen2.5-7B", "--budget"), "leave out MODEL"),
        (("--budget", "--quota", "9G", "-s", "512"), "leave out --seq, --quota"),
        (("--budget", "--card", "9G", "--card", "8G"), "give --card once"),
    ],
)
def test_what_the_caller_got_wrong_is_one_clear_line_and_status_2(words: tuple[str, ...], says: str) -> None:
    done = estimate(*words)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_what_a_file_got_wrong_is_said_of_the_file(tmp_path: Path) -> None:
    config = tmp_path / "wrong.yaml"
    config.write_text("base_model: Qwen/Qwen2.5-7B\nadapter: lora\nlora_target_modules: [nothing]\n")
    done = estimate("--from", str(config))
    assert done.returncode == 2
    assert f"{config}: targets nothing: Qwen2.5-7B has q_proj" in done.stderr


def test_what_a_file_holds_does_not_steer_the_terminal(tmp_path: Path) -> None:
    config = tmp_path / "odd.yaml"
    config.write_text("base_model: Qwen/Qwen2.5-7B\nadapter: lora\noptimizer: \x1b[2Jx\n\x1b]0;y: 1\n")
    done = estimate("--from", str(config))
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "not understood: optimizer = " in done.stdout


def test_trainers_names_of_optimizers_are_known() -> None:
    names = ("adamw_torch_fused", "adamw_bnb_8bit", "paged_adamw_8bit", "adamw_8bit", "lion_8bit")
    peaks = [told("Qwen2.5-0.5B", "--method", "full", "--optimizer", name)["torch_peak_mib"] for name in names]
    assert peaks[1] == peaks[2] == peaks[3]
    assert peaks[0] > peaks[1] > peaks[4]  # type: ignore[operator]


def test_what_vllm_needs_and_what_it_takes_are_both_said_and_do_not_contradict() -> None:
    starts = estimate("Qwen2.5-7B", "--method", "vllm", "--card", "24G").stdout
    assert "fits the card" in starts
    assert "will occupy    21.6 GiB" in starts  # 90 %
    small = estimate("Qwen2.5-7B", "--method", "vllm", "--card", "24G", "--utilization", "0.5").stdout
    assert "vLLM does not start: 50% of the card is 12.0 GiB, and it needs 15.3 GiB" in small
    assert "none   vLLM does not start" in small
    assert "does not fit: card of 24.0 GiB" in small
    assert "gpu_memory_utilization 0.68" in " ".join(small.split())


def test_a_share_is_of_the_card_that_it_is_advised_for() -> None:
    both = estimate("Qwen2.5-7B", "--method", "vllm", "--card", "16G", "--card", "40G").stdout
    assert "will occupy    36.0 GiB" in both
    assert "does not fit: card of 16.0 GiB" in both
    alone = estimate("Qwen2.5-7B", "--method", "vllm", "--card", "16G").stdout
    assert [line for line in both.splitlines() if line.startswith("  - ")] == [
        line for line in alone.splitlines() if line.startswith("  - ")
    ]


def test_no_claim_is_more_than_could_be_granted() -> None:
    assert "--vram 32607M" in estimate("Qwen2.5-7B", "--card", "32607M", "-s", "4600").stdout  # 31.x GiB, rounded up
    assert "--vram 23G" in estimate("Qwen2.5-7B", "--card", "16G", "--card", "80G").stdout  # the larger one can
    tight = estimate("Qwen2.5-7B", "--card", "22G").stdout
    assert "--vram 22528M   all of the card of 22.0 GiB: may not be enough" in tight
    assert (
        "none   no job can: it needs more than the quota of 10.0 GiB" in estimate("Qwen2.5-7B", "--quota", "10G").stdout
    )


def test_budget_prints_sizes_by_methods() -> None:
    done = estimate("--budget", "--card", "32607M")
    assert done.returncode == 0
    rows = [line for line in done.stdout.splitlines() if line.startswith(("Qwen", "Llama"))]
    assert len(rows) == 8 + 8
    for held, longest in zip(rows[:8], rows[8:], strict=True):  # the two tables say the same of 2048 tokens
        for here, tokens in zip(held.split()[1:], longest.split()[1:], strict=True):
            fits = not here.startswith(("-", "~"))
            assert fits == (tokens != "-" and int(tokens) >= 2048), (held, longest)
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


def test_it_imports_nothing_heavy() -> None:
    script = (
        "import sys; from gq.estimate import command\n"
        "command(['Qwen2.5-7B', '--card', '24G'], standalone_mode=False)\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environ(), timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"
