"""Ten configurations in the styles of Axolotl, LLaMA-Factory, TRL, Trainer and accelerate: what was read of
each, what was assumed, what was not understood."""

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuqueue.estimate.catalogue import find
from gpuqueue.estimate.choose import choose
from gpuqueue.estimate.estimate import estimate
from gpuqueue.estimate.read_python import read_python
from gpuqueue.estimate.read_training import (
    AXOLOTL,
    AXOLOTL_ELSEWHERE,
    LLAMA_FACTORY,
    LLAMA_FACTORY_ELSEWHERE,
    TRL_ELSEWHERE,
    read_document,
    read_training,
)
from gpuqueue.estimate.reading import UNCOUNTED, Reading, UnreadableConfigError
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
        {"method": "qlora", "weights": "nf4-dq", "rank": 32, "targets": ALL, "dropout": True, "batch": 1}
        | {"seq_len": 4096, "packed": True, "grad_accumulation": 8, "optimizer": "paged_adamw_8bit"}
        | {"checkpointing": True, "attention": "flash", "kbit": "peft", "eval_batch": 1}
        | BF16,
        ["double quantisation, Axolotl's", "prepare_model_for_kbit_training", "evaluation by the micro batch"],
        [],
    ),
    "axolotl_lora_cce_qwen.yaml": (
        "Qwen/Qwen3-8B",
        {"method": "lora", "rank": 16, "targets": ATTENTION + MLP, "loss": "linear", "batch": 2}
        | {"modules_to_save": ("embed_tokens", "lm_head"), "seq_len": 8192, "packed": True, "grad_accumulation": 4}
        | {"optimizer": "adamw_fused", "checkpointing": True, "offload_activations": True, "attention": "flash"}
        | BF16,
        [],
        [],
    ),
    "axolotl_full_zero3.yaml": (
        "meta-llama/Llama-3.1-8B",
        {"method": "full", "batch": 2, "seq_len": 4096, "packed": True, "grad_accumulation": 2}
        | {"optimizer": "adamw", "checkpointing": True, "attention": "flash", "zero": 3}
        | LIGER
        | BF16,
        ["ZeRO stage 3 from the file name"],
        [],
    ),
    "llamafactory_lora_sft.yaml": (
        "Qwen/Qwen2.5-7B-Instruct",
        {"method": "lora", "rank": 8, "targets": ALL, "batch": 2, "seq_len": 2048}
        | {"grad_accumulation": 8, "checkpointing": True, "optimizer": "adamw_fused"}
        | BF16,
        ["LLaMA-Factory turns on unasked", "adamw_torch_fused"],
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
        {"method": "full", "batch": 1, "seq_len": 4096, "grad_accumulation": 4, "zero": 2}
        | {"attention": "sdpa", "checkpointing": True, "optimizer": "adamw_fused"}
        | LIGER
        | BF16,
        [
            "ZeRO stage 2 from the file name",
            "LLaMA-Factory turns on unasked",
            "adamw_torch_fused",
        ],
        [],
    ),
    "trl_sft_cli.yaml": (
        "HuggingFaceTB/SmolLM2-1.7B",
        {"method": "qlora", "weights": "nf4", "rank": 64, "targets": ALL, "batch": 4, "seq_len": 2048, "kbit": "trl"}
        | {"packed": True, "grad_accumulation": 2, "attention": "flash", "checkpointing": True}
        | {"optimizer": "adamw_fused", "dropout": True}
        | LIGER
        | BF16,
        [
            "LoRA dropout 0.05, TRL's",
            "adamw_torch_fused",
            "checkpointing, TRL's default",
            "bf16 autocast, TRL's default",
        ],
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
        | {"checkpointing": True, "optimizer": "adamw_fused", "reference_model": False}
        | BF16,
        ["no reference model", "adamw_torch_fused", "checkpointing, TRL's default"],
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
        ("a.json", '{"base_model": 1, "base_model": 2}', "base_model stands here a second time"),
        ("a.yaml", "base_model: x\n\tadapter: lora\n", "line 2: indented with a tab"),
        ("a.yaml", "base_model: x\nbase_model: y\n", "line 2: base_model stands here a second time"),
        ("a.yaml", "base_model: " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("a.yaml", "".join(" " * depth + "a:\n" for depth in range(1200)), "nested too deeply"),
        ("a.json", "[" * 100000, "nested too deeply"),
        ("a.py", "x = 1\ny = '\0'\n", "line 2: not valid Python"),
        ("a.py", "x = " + "(" * 5000 + ")" * 5000, "not valid Python|nested too deeply"),
        ("a.py", "SFTConfig(seed=" + "-" * 50000 + "1)", "nested too deeply"),
        ("a.yaml", "# " + "x" * (1 << 20), "at most 1 MiB"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused_by_name(tmp_path: Path, name: str, text: str, says: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UnreadableConfigError, match=says) as caught:
        read_training(path)
    assert str(path) in str(caught.value) or path.name in str(caught.value)


def test_a_pipe_or_a_directory_is_no_configuration(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "folder.yaml").mkdir()
    for name in ("pipe.yaml", "folder.yaml"):
        with pytest.raises(UnreadableConfigError, match=name):
            read_training(tmp_path / name)


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("\ufeffbase_model: Qwen/Qwen2.5-7B\n", encoding="utf-8")
    assert read_training(path).model == "Qwen/Qwen2.5-7B"


# What the frameworks take where nothing is said ----------------------------------------------------


def reading_of(tmp_path: Path, text: str, name: str = "a.yaml") -> Reading:
    path = tmp_path / name
    path.write_text(text)
    return read_training(path)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("base_model: m\nadapter: lora\n", {"seq_len": 512, "batch": 1, "optimizer": "adamw_fused", "rank": 8}),
        ("base_model: m\nadapter: qlora\nload_in_4bit: true\n", {"weights": "nf4-dq", "kbit": "peft"}),
        (
            "model_name_or_path: m\nfinetuning_type: lora\n",
            {"seq_len": 2048, "batch": 8, "rank": 8, "targets": ALL, "checkpointing": True},
        ),
        ("model_name_or_path: m\nfinetuning_type: full\n", {"weights": "fp32"}),
        ("model_name_or_path: m\nfinetuning_type: full\npure_bf16: true\n", {"weights": "bf16", "autocast": False}),
        (
            "model_name_or_path: m\nuse_peft: true\n",
            {"seq_len": 1024, "batch": 8, "rank": 16, "dropout": True, "targets": ("q_proj", "v_proj")},
        ),
    ],
)
def test_a_default_is_the_frameworks_own_and_is_said(tmp_path: Path, text: str, fields: dict[str, Any]) -> None:
    reading = reading_of(tmp_path, text)
    assert reading.fields | fields == reading.fields
    assert len(reading.assumed) >= len(fields) - 2  # one sentence may set two


def test_evaluation_counts_only_where_the_file_asks_for_one(tmp_path: Path) -> None:
    text = "model_name_or_path: m\nper_device_eval_batch_size: 32\n"
    off = reading_of(tmp_path, text)
    assert "eval_batch" not in off.fields
    assert "no evaluation: eval_strategy is not set" in " ".join(off.assumed)
    assert reading_of(tmp_path, text + "eval_strategy: steps\n").fields["eval_batch"] == 32
    assert reading_of(tmp_path, "model_name_or_path: m\neval_strategy: epoch\n").fields["eval_batch"] == 8


def test_a_classifier_is_one_by_its_class(tmp_path: Path) -> None:
    loads = "AutoModelFor{}.from_pretrained('m'{})\nTrainingArguments('out')\n"
    for named, labels in (("", 2), (", num_labels=5", 5)):
        assert reading_of(tmp_path, loads.format("SequenceClassification", named), "a.py").fields["labels"] == labels
    assert "labels" not in reading_of(tmp_path, loads.format("CausalLM", ""), "a.py").fields


def test_llamafactorys_reward_model_keeps_the_language_models_head(tmp_path: Path) -> None:
    text = "model_name_or_path: m\nfinetuning_type: lora\nstage: rm\n"
    expected = {"trainer": "reward", "value_head": True}
    assert reading_of(tmp_path, text).fields | expected == reading_of(tmp_path, text).fields


def test_nothing_is_assumed_of_weights_over_what_the_model_itself_says(tmp_path: Path) -> None:
    """A quantised model stays one where the file does not say how it is loaded."""
    for text in ("base_model: m-AWQ\nadapter: lora\n", "model_name_or_path: m-AWQ\nuse_peft: true\n"):
        assert "weights" not in reading_of(tmp_path, text).fields


def test_vllm_on_the_trainers_card_is_read(tmp_path: Path) -> None:
    script = "GRPOConfig(use_vllm=True, {}num_generations=8, beta=0.04, max_completion_length=300)\n"
    placed = 'vllm_mode="colocate", vllm_gpu_memory_utilization=0.4, vllm_enable_sleep_mode=True, '
    reading = reading_of(tmp_path, script.format(placed), "a.py")
    expected = {"gpu_memory_utilization": 0.4, "vllm_sleeps": True, "reference_model": True, "completion_len": 300}
    assert reading.fields | expected == reading.fields
    unsaid = reading_of(tmp_path, script.format(""), "a.py")
    assert unsaid.fields["gpu_memory_utilization"] == 0.3
    assert "vLLM on the trainer's card" in " ".join(unsaid.assumed)
    server = reading_of(tmp_path, script.format('vllm_mode="server", '), "a.py")
    assert "gpu_memory_utilization" not in server.fields


def test_nothing_that_stands_in_a_file_is_dropped_without_a_word(tmp_path: Path) -> None:
    text = "base_model: m\nadapter: lora\npeft_use_dora: true\nlearning_rate: 0.1\noptimizer: galore_adamw\n"
    reading = reading_of(tmp_path, text)
    assert reading.passed == ["learning_rate"]
    assert any("peft_use_dora = True: it changes memory" in said for said in reading.unread)
    assert "optimizer = galore_adamw" in reading.unread
    assert any("in place of one that is not known here" in said for said in reading.assumed)


def test_what_a_script_works_out_is_named(tmp_path: Path) -> None:
    text = "c = GRPOConfig(use_vllm=flag(), beta=b, seed=now(), logging_steps=1)\n"
    reading = reading_of(tmp_path, text, "a.py")
    assert [said.partition(":")[0] for said in reading.unread] == ["GRPOConfig.use_vllm", "GRPOConfig.beta"]
    assert reading.passed == ["GRPOConfig.seed", "GRPOConfig.logging_steps"]


def test_sharding_and_offloading_are_read_the_same_in_every_file(tmp_path: Path) -> None:
    files = (
        ("a.yaml", "base_model: m\nfsdp_config:\n  offload_params: true\n"),
        ("a.yaml", "model_name_or_path: m\nfsdp: full_shard offload\n"),
        ("a.yaml", "distributed_type: FSDP\nfsdp_config:\n  fsdp_offload_params: true\n"),
        ("a.py", "TrainingArguments('out', fsdp='full_shard offload')\n"),
    )
    for name, text in files:
        fields = reading_of(tmp_path, text, name).fields
        assert (fields["zero"], fields["offload_weights"], fields["offload_optimizer"]) == (3, True, True)


def test_targets_by_a_regular_expression_are_those_that_it_names(tmp_path: Path) -> None:
    text = "LoraConfig(r=8, target_modules=r'.*\\.(q_proj|up_proj)$')\nTrainingArguments('out')\n"
    assert reading_of(tmp_path, text, "a.py").fields["targets"] == ("q_proj", "up_proj")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
KEYS = sorted({*AXOLOTL, *LLAMA_FACTORY, *AXOLOTL_ELSEWHERE, *LLAMA_FACTORY_ELSEWHERE, *TRL_ELSEWHERE, *UNCOUNTED})
FIRST = ("base_model", "finetuning_type", "distributed_type", "model_name_or_path")


@given(st.sampled_from(FIRST), st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8))
def test_any_values_are_read_or_refused_in_words(first: str, document: dict[str, Any]) -> None:
    """Whatever stands behind a key: an estimate, or a ValueError whose text is for people."""
    try:
        reading = read_document({first: "x"} | document, Path("a.yaml"))
        estimate(choose(find("Qwen2.5-0.5B"), reading.fields))
    except ValueError as error:
        assert str(error)


@given(st.sampled_from(["SFTConfig", "LoraConfig", "GRPOConfig"]), st.dictionaries(st.sampled_from(KEYS), VALUES))
def test_any_keywords_of_a_script_are_read_or_refused_in_words(name: str, keywords: dict[str, Any]) -> None:
    text = f"{name}({', '.join(f'{key}={value!r}' for key, value in keywords.items())})\n"
    try:
        estimate(choose(find("Qwen2.5-0.5B"), read_python(text, Path("a.py")).fields))
    except ValueError as error:
        assert str(error)


@given(st.text(max_size=200))
def test_any_text_is_a_script_or_refused_in_words(text: str) -> None:
    with contextlib.suppress(UnreadableConfigError):
        read_python(text, Path("a.py"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableConfigError, match=r"nowhere\.yaml cannot be read"):
        read_training(tmp_path / "nowhere.yaml")
