"""What a command line or a shell script says about memory, and what it is not taken to say."""

from pathlib import Path

import pytest

from gpuqueue.estimate.read_command import read_command, read_shell

CONFIGS = Path(__file__).parent / "configs"


def test_training_options_of_a_command_are_read() -> None:
    words = "python run.py --model_name_or_path Qwen/Qwen2.5-7B --per-device-train-batch-size=4 --bf16 --max_length 512"
    found = read_command(words.split(), CONFIGS)
    assert found.model == "Qwen/Qwen2.5-7B"
    assert found.reading is not None
    assert (found.reading.fields["batch"], found.reading.fields["seq_len"]) == (4, 512)
    assert found.reading.fields["compute"] == "bf16"


@pytest.mark.parametrize(
    ("words", "model"),
    [
        ("axolotl train axolotl_qlora_mistral.yaml", "mistralai/Mistral-7B-v0.3"),
        ("accelerate launch -m axolotl.cli.train axolotl_full_zero3.yaml", "meta-llama/Llama-3.1-8B"),
        ("accelerate launch --config_file accelerate_zero2.yaml trl_sft_qlora.py", None),
        ("python trainer_argparse.py", None),
    ],
)
def test_configurations_and_programs_among_the_words_are_read(words: str, model: str | None) -> None:
    found = read_command(words.split(), CONFIGS)
    assert found.reading is not None
    assert found.model == found.reading.model
    assert found.model == model or model is None


def test_the_command_line_wins_over_the_file() -> None:
    found = read_command(["python", "trainer_argparse.py", "--per_device_train_batch_size", "3"], CONFIGS)
    assert found.reading is not None
    assert found.reading.fields["batch"] == 3
    named = read_command(["axolotl", "train", "axolotl_qlora_mistral.yaml", "--base_model", "Qwen/Qwen3-8B"], CONFIGS)
    assert named.model == "Qwen/Qwen3-8B"


@pytest.mark.parametrize(
    "words",
    ["python eval.py --model Qwen/Qwen2.5-7B", "vllm serve --model Qwen/Qwen2.5-7B", "x --model=Qwen/Qwen2.5-7B"],
)
def test_a_model_is_known_where_nothing_shows_a_training(words: str) -> None:
    found = read_command(words.split(), CONFIGS)
    assert (found.model, found.reading) == ("Qwen/Qwen2.5-7B", None)


@pytest.mark.parametrize(
    "words",
    ["true", "python train.py", "python missing.yaml", "python --model --lr 1", "--", "python accelerate_zero2.yaml"],
)
def test_what_names_no_model_says_nothing(words: str) -> None:
    found = read_command(words.split(), CONFIGS)
    assert (found.model, found.reading) == (None, None)


def test_a_program_that_does_not_train_with_trainer_is_not_guessed_at(tmp_path: Path) -> None:
    loads = 'model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")\nmodel.generate()\n'
    (tmp_path / "eval.py").write_text(loads)
    assert read_command(["python", "eval.py"], tmp_path).reading is None


def test_a_shell_script_is_read_with_its_variables_and_arguments() -> None:
    text = """#!/bin/bash
#GQ --vram auto
export MODEL=Qwen/Qwen2.5-7B
BATCH=8
echo "it's on"
cd work && true
accelerate launch train.py \\
    --model_name_or_path $MODEL --per_device_train_batch_size ${BATCH} "$@"
"""
    found = read_shell(text, ["--max_length", "256"], CONFIGS)
    assert found.model == "Qwen/Qwen2.5-7B"
    assert found.reading is not None
    assert (found.reading.fields["batch"], found.reading.fields["seq_len"]) == (8, 256)


def test_a_shell_script_without_a_training_may_still_name_its_model() -> None:
    assert read_shell('python eval.py --model "$1"', [], CONFIGS).model is None
    found = read_shell("echo 'open\npython eval.py --model Qwen/Qwen2.5-7B\nsleep 1\n", [], CONFIGS)
    assert (found.model, found.reading) == ("Qwen/Qwen2.5-7B", None)
