"""Ten configurations in the styles of Axolotl, LLaMA-Factory, TRL, Trainer and accelerate: what was read of
each, what was assumed, what was not understood."""

from pathlib import Path
from typing import Any

import pytest

from gpuqueue.estimate.catalogue import find
from gpuqueue.estimate.estimate import estimate
from gpuqueue.estimate.read_training import read_training
from gpuqueue.estimate.reading import UnreadableConfigError
from gpuqueue.estimate.run import Run

CONFIGS = Path(__file__).parent / "configs"
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")
ALL = ("all-linear",)
LIGER = {"loss": "linear", "fused_norms": True, "fused_mlp": True}
BF16 = {"compute": "bf16", "autocast": True}

# file -> model, every Run field, a word of each assumption, a word of each thing that was not understood
EXPECTED: dict[str, tuple[str | None, dict[str, Any], list[str], list[str]]] = {
    "axolotl_qlora_mistral.yaml": (
        "mistralai/Mistral-7B-v0.3",
        {"method": "qlora", "weights": "nf4", "rank": 32, "targets": ALL, "dropout": True, "batch": 1}
        | {"seq_len": 4096, "packed": True, "grad_accumulation": 8, "optimizer": "paged_adamw_8bit"}
        | {"checkpointing": True, "attention": "flash"}
        | BF16,
        [],
        [],
    ),
    "axolotl_lora_cce_qwen.yaml": (
        "Qwen/Qwen3-8B",
        {"method": "lora", "weights": "bf16", "rank": 16, "targets": ATTENTION + MLP, "loss": "linear", "batch": 2}
        | {"modules_to_save": ("embed_tokens", "lm_head"), "seq_len": 8192, "packed": True, "grad_accumulation": 4}
        | {"optimizer": "adamw_fused", "checkpointing": True, "offload_activations": True, "attention": "flash"}
        | BF16,
        ["weights in bf16"],
        [],
    ),
    "axolotl_full_zero3.yaml": (
        "meta-llama/Llama-3.1-8B",
        {"method": "full", "weights": "bf16", "batch": 2, "seq_len": 4096, "packed": True, "grad_accumulation": 2}
        | {"optimizer": "adamw", "checkpointing": True, "attention": "flash", "zero": 3}
        | LIGER
        | BF16,
        ["ZeRO stage 3 from the file name", "weights in bf16"],
        [],
    ),
    "llamafactory_lora_sft.yaml": (
        "Qwen/Qwen2.5-7B-Instruct",
        {"method": "lora", "weights": "bf16", "rank": 8, "targets": ALL, "batch": 2, "seq_len": 2048}
        | {"grad_accumulation": 8, "checkpointing": True, "optimizer": "adamw_fused"}
        | BF16,
        ["LLaMA-Factory turns on unasked", "adamw_torch_fused", "weights in bf16"],
        [],
    ),
    "llamafactory_qlora_dpo.yaml": (
        "meta-llama/Meta-Llama-3-8B-Instruct",
        {"method": "qlora", "weights": "nf4-dq", "rank": 8, "targets": ("q_proj", "v_proj"), "trainer": "dpo"}
        | {"batch": 1, "seq_len": 1024, "grad_accumulation": 16, "optimizer": "paged_adamw", "attention": "flash"}
        | {"compute": "fp16", "autocast": True, "checkpointing": True, "kbit": "none"},
        ["double quantisation", "k-bit preparation", "LLaMA-Factory turns on unasked", "rank 8"],
        [],
    ),
    "llamafactory_full_zero2.yaml": (
        "Qwen/Qwen2.5-3B",
        {"method": "full", "weights": "bf16", "batch": 1, "seq_len": 4096, "grad_accumulation": 4, "zero": 2}
        | {"attention": "sdpa", "checkpointing": True, "optimizer": "adamw_fused"}
        | LIGER
        | BF16,
        [
            "ZeRO stage 2 from the file name",
            "LLaMA-Factory turns on unasked",
            "adamw_torch_fused",
            "weights in bf16",
        ],
        [],
    ),
    "trl_sft_cli.yaml": (
        "HuggingFaceTB/SmolLM2-1.7B",
        {"method": "qlora", "weights": "nf4", "rank": 64, "targets": ALL, "batch": 4, "seq_len": 2048, "kbit": "trl"}
        | {"packed": True, "grad_accumulation": 2, "attention": "flash", "checkpointing": True}
        | {"optimizer": "adamw_fused"}
        | LIGER
        | BF16,
        ["adamw_torch_fused", "checkpointing, TRL's default", "bf16 autocast, TRL's default"],
        [],
    ),
    "trl_sft_qlora.py": (
        "Qwen/Qwen2.5-14B",
        {"method": "qlora", "weights": "nf4-dq", "kbit": "trl", "rank": 32, "targets": ALL, "dropout": True}
        | {"batch": 2, "seq_len": 2048, "packed": True, "grad_accumulation": 4, "optimizer": "paged_adamw_8bit"}
        | {"checkpointing": True, "attention": "flash"}
        | BF16,
        [],
        [],
    ),
    "trl_dpo_full.py": (
        "Qwen/Qwen2.5-1.5B-Instruct",
        {"method": "full", "weights": "bf16", "trainer": "dpo", "batch": 2, "seq_len": 1024, "optimizer": "adamw"}
        | {"checkpointing": True}
        | BF16,
        [],
        [],
    ),
    "trl_grpo_lora.py": (
        "Qwen/Qwen2.5-3B-Instruct",
        {"method": "lora", "weights": "bf16", "trainer": "grpo", "rank": 16, "targets": ATTENTION, "batch": 8}
        | {"seq_len": 256, "completion_len": 512, "grad_accumulation": 2, "attention": "sdpa"}
        | {"checkpointing": True, "optimizer": "adamw_fused"}
        | BF16,
        ["adamw_torch_fused", "checkpointing, TRL's default"],
        [],
    ),
    "trainer_argparse.py": (
        "mistralai/Mistral-7B-v0.1",
        {"method": "qlora", "weights": "int8", "kbit": "peft", "rank": 64, "targets": ("q_proj", "v_proj")}
        | {"modules_to_save": ("lm_head",), "batch": 4, "seq_len": 2048, "optimizer": "adamw", "checkpointing": True}
        | {"compute": "fp16", "autocast": True},
        ["q_proj and v_proj, PEFT's default", "2048 tokens: the tokenizer's call"],
        ["gradient_accumulation_steps: not a literal"],
    ),
    "accelerate_zero2.yaml": (
        None,
        {"zero": 2, "offload_optimizer": True, "ranks": 4} | BF16,
        [],
        [],
    ),
}


def test_every_configuration_here_has_its_expectation() -> None:
    assert {path.name for path in CONFIGS.iterdir() if path.is_file()} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_configuration_is_read_as_its_framework_means_it(name: str) -> None:
    model, fields, assumed, unread = EXPECTED[name]
    reading = read_training(CONFIGS / name)
    assert reading.model == model
    assert reading.fields == fields
    assert len(reading.assumed) == len(assumed), reading.assumed
    assert all(word in said for word, said in zip(assumed, reading.assumed, strict=True)), reading.assumed
    assert len(reading.unread) == len(unread), reading.unread
    assert all(word in said for word, said in zip(unread, reading.unread, strict=True))


@pytest.mark.parametrize("name", EXPECTED)
def test_what_was_read_is_a_run_that_can_be_estimated(name: str) -> None:
    reading = read_training(CONFIGS / name)
    found = estimate(Run(find(reading.model or "Qwen2.5-3B"), **reading.fields))
    assert found.torch_peak_mib > 1000
    assert found.assumptions


def test_unsloths_loader_and_adapter_are_read(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "model, tokenizer = FastLanguageModel.from_pretrained(\n"
        "    model_name='unsloth/Llama-3.2-3B-Instruct', max_seq_length=4096, load_in_4bit=True)\n"
        "model = FastLanguageModel.get_peft_model(model, r=8, target_modules=['q_proj', 'v_proj'],\n"
        "    lora_dropout=0, use_gradient_checkpointing='unsloth')\n"
        "trainer = SFTTrainer(model=model, args=SFTConfig(per_device_train_batch_size=2, optim='adamw_8bit'))\n"
    )
    reading = read_training(script)
    assert reading.model == "unsloth/Llama-3.2-3B-Instruct"
    expected = {"method": "qlora", "weights": "nf4", "rank": 8, "seq_len": 4096, "checkpointing": True, "batch": 2}
    assert reading.fields | expected == reading.fields


def test_a_training_script_is_never_run(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\nTrainingArguments('out', bf16=True)\n")
    read_training(script)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.yaml", "just: settings\n", "is no Axolotl"),
        ("a.yaml", "- a\n- b\n", "holds no settings"),
        ("a.yaml", "base_model: *x\n", "line 1"),
        ("a.py", "x = 1\n", "no call of TrainingArguments"),
        ("a.py", "def f(:\n", "line 1: not valid Python"),
        ("a.toml", "a = 1\n", r"reads \.py, \.yaml"),
        ("a.json", "{", "a.json"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused_by_name(tmp_path: Path, name: str, text: str, says: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UnreadableConfigError, match=says) as caught:
        read_training(path)
    assert str(path) in str(caught.value) or path.name in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableConfigError, match=r"nowhere\.yaml cannot be read"):
        read_training(tmp_path / "nowhere.yaml")
