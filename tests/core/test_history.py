"""What counts as the same work, the same program, the same family of models."""

from typing import Any

import pytest

from gpuqueue.core.history import family, program_words, work_of
from gpuqueue.wire.jobs import SubmitRequest


def asked(*command: str, **changes: Any) -> SubmitRequest:
    values: dict[str, Any] = {"idempotency_key": "k", "vram_mib": 1, "command": list(command), "cwd": "/w", "env": {}}
    return SubmitRequest(**values | changes)


SCRIPT = {"script": "accelerate launch train.py\n", "script_name": "train.sh"}


def test_the_same_words_in_the_same_directory_are_the_same_work() -> None:
    assert work_of(asked("python", "train.py")) == work_of(
        asked("python", "train.py", vram_mib=9, name="x", env={"A": "1"})
    )
    assert work_of(asked("--lr", "1", **SCRIPT)) == work_of(asked("--lr", "1", **SCRIPT | {"script_name": "copy.sh"}))


@pytest.mark.parametrize(
    "other",
    [
        asked("--lr", "2", **SCRIPT),
        asked("--lr", "1", **SCRIPT, cwd="/elsewhere"),
        asked("--lr 1", **SCRIPT),
    ],
    ids=["arguments", "directory", "words"],
)
def test_a_script_is_the_same_program_with_other_arguments_and_elsewhere(other: SubmitRequest) -> None:
    one = work_of(asked("--lr", "1", **SCRIPT))
    assert one.key != work_of(other).key
    assert one.program == work_of(other).program


def test_an_edited_script_is_another_program() -> None:
    assert work_of(asked(**SCRIPT)).program != work_of(asked(script="python train.py\n")).program


def test_a_command_names_files_so_elsewhere_it_is_another_program() -> None:
    here, there = work_of(asked("python", "train.py")), work_of(asked("python", "train.py", cwd="/elsewhere"))
    assert here.program != there.program
    assert here.program == work_of(asked("python", "train.py", "--lr", "2")).program


def test_a_script_and_a_command_are_never_the_same() -> None:
    assert work_of(asked("a", script="b")).key != work_of(asked("b", "a")).key


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("python train.py --lr 1 out", "python train.py"),
        ("python -u train.py --lr 1", "python -u train.py"),
        ("python -m pkg.train --lr 1", "python -m pkg.train"),
        ("torchrun --nproc_per_node 2 train.py --lr 1", "torchrun --nproc_per_node 2 train.py"),
        ("llamafactory-cli train lora.yaml lr=1", "llamafactory-cli train lora.yaml lr=1"),
        ("./train --lr 1", "./train"),
        ("sh -c 'python train.py'", "sh -c 'python train.py'"),
        ("bash -lc x --lr", "bash -lc x --lr"),
        ("true", "true"),
    ],
)
def test_the_program_is_what_stands_before_its_arguments(command: str, program: str) -> None:
    from shlex import split

    assert program_words(split(command)) == split(program)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5"),
        ("Qwen2.5-0.5B", "qwen2.5"),
        ("Qwen2.5-Coder-7B", "qwen2.5-coder"),
        ("meta-llama/Llama-3.1-8B", "llama-3.1"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral"),
        ("bigscience/bloom-560m", "bloom"),
        ("/data/models/gpt2/", "gpt2"),
        ("7B", "7b"),
    ],
)
def test_a_family_is_the_name_up_to_its_size(model: str, expected: str) -> None:
    assert family(model) == expected
    work = work_of(asked("python", "train.py", model=model))
    assert (work.model, work.family) == (model, expected)


def test_without_a_model_there_is_no_family() -> None:
    assert work_of(asked("python", "train.py")).family is None
