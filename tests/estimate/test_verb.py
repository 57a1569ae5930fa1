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
    assert "tokens * 28 layers" in explained
    assert "[counted tensors" in explained
    assert "tokens * 28 layers" not in plain


def test_json_says_the_same_as_the_table() -> None:
    found = told("Qwen2.5-7B", "--method", "qlora", "--card", "24G")
    assert found["weights"] == "nf4"
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
        (("Qwen2.5-7B", "--weights", "int3"), "weights 'int3' is not one of"),
        (("Qwen2.5-7B", "--from", "nowhere.yaml"), "nowhere.yaml cannot be read"),
        (("nowhere.gguf",), "nowhere.gguf"),
    ],
)
def test_what_the_caller_got_wrong_is_one_clear_line_and_status_2(words: tuple[str, ...], says: str) -> None:
    done = estimate(*words)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_budget_prints_sizes_by_methods() -> None:
    done = estimate("--budget", "--card", "32607M")
    assert done.returncode == 0
    rows = [line for line in done.stdout.splitlines() if line.startswith(("Qwen", "Llama"))]
    assert len(rows) == 8 + 8
    assert rows[-1].split()[1:] == rows[7].split()[1:] == ["-"] * 8
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


def test_it_imports_nothing_heavy() -> None:
    script = (
        "import sys; from gq.estimate import command\n"
        "command(['Qwen2.5-7B', '--card', '24G'], standalone_mode=False)\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environ(), timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"
