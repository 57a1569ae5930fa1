"""`gpuqueued init`: the state directory, the cards, and what a CUDA context takes on each, which estimates then use."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuqueue.core.readings import NodeReading
from gpuqueue.estimate.allocator import KERNELS_MIB
from gpuqueue.gpu import context
from gpuqueue.gpu.nvml import NvmlCards
from tests import nvml_standin
from tests.e2e.node import Node, base_env
from tests.nvml_standin import StandInCard

NOT_SUPPORTED = 3
HIDING = [f"nvmlDeviceGetComputeRunningProcesses_v{version}" for version in (2, 3)]

TRAINER = """
from transformers import AutoModelForCausalLM, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
arguments = TrainingArguments(output_dir="out", per_device_train_batch_size=1, bf16=True)
"""

pytestmark = pytest.mark.e2e


@pytest.fixture
def cards(open_path: Path) -> list[StandInCard]:
    simdir = open_path / "sim"
    return [
        StandInCard(uuid="GPU-aaaa", bus="00000000:17:00.0", simdir=simdir),
        StandInCard(uuid="GPU-bbbb", bus="00000000:65:00.0", simdir=simdir),
    ]


def init(open_path: Path, state: Path, cards: list[StandInCard], *options: str, **environment: str) -> str:
    nvml_standin.write_cards(open_path / "cards", cards)
    env = base_env() | nvml_standin.environment(open_path / "cards") | environment
    command = [sys.executable, "-m", "gpuqueue.daemon", "init", "--state-dir", str(state), *options]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_context_is_measured_on_every_card_and_estimates_use_it(
    make_nvml_node: Callable[..., Node], open_path: Path, cards: list[StandInCard]
) -> None:
    node = make_nvml_node(config=f'[daemon]\nsample = "1s"\nnode_lock = "{open_path}/node.lock"\n')
    said = init(open_path, node.state, cards, GQ_CUDA_STANDIN_CONTEXT="311")
    assert said.count("a bare CUDA context takes 311 MiB, measured (NVML of the process)") == 2
    node.start()
    assert [card["context_mib"] for card in node.gpus()] == [311, 311]
    told = json.loads(node.gq("estimate", "Qwen2.5-7B", "--json").stdout)
    (component,) = [one for one in told["components"] if one["name"] == "CUDA context"]
    assert component["mib"] == 311 + KERNELS_MIB  # what frameworks load into it was not measured
    assert "measured on this node" in node.gq("estimate", "Qwen2.5-7B", "--explain").stdout
    own = json.loads(node.gq("estimate", "Qwen2.5-7B", "--context", "500M", "--json").stdout)
    assert own["occupied_mib"] - told["occupied_mib"] == 500 - 311 - KERNELS_MIB


def test_a_submitted_job_is_estimated_with_the_context_of_its_node(
    make_nvml_node: Callable[..., Node], open_path: Path, cards: list[StandInCard]
) -> None:
    node = make_nvml_node(config=f'[daemon]\nsample = "1s"\nnode_lock = "{open_path}/node.lock"\n')
    init(open_path, node.state, cards, GQ_CUDA_STANDIN_CONTEXT="311")
    node.start()
    trainer = open_path / "train.py"
    trainer.write_text(TRAINER)
    job = node.submit("--vram", "1G", "--", sys.executable, str(trainer))
    assert node.show(job)["estimate"]["context_mib"] == 311 + KERNELS_MIB


def test_where_the_driver_hides_who_holds_what_the_growth_tells(open_path: Path, cards: list[StandInCard]) -> None:
    for card in cards:
        card.faults = dict.fromkeys(HIDING, NOT_SUPPORTED)
    said = init(open_path, open_path / "state", cards, GQ_CUDA_STANDIN_CONTEXT="311")
    assert said.count("a bare CUDA context takes 311 MiB, measured (the growth of the card's use") == 2


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({"GQ_CUDA_STANDIN_INIT": "999"}, "cuInit answered 999"),
        ({"GQ_CUDA_STANDIN_INIT": "hang"}, "the CUDA driver did not answer within 1 s"),
        ({}, "the driver does not tell what the context holds"),
    ],
    ids=["refuses", "hangs", "takes nothing"],
)
def test_what_cannot_be_measured_is_said_and_is_no_failure(
    open_path: Path, cards: list[StandInCard], environment: dict[str, str], why: str
) -> None:
    said = init(open_path, open_path / "state", cards, "--wait", "1", **environment)
    assert said.count(f"no CUDA context could be measured, estimates go by the published figure: {why}") == 2
    assert context.kept(open_path / "state") == {}


def test_a_figure_that_cannot_be_measured_again_stays_and_is_said(open_path: Path, cards: list[StandInCard]) -> None:
    context.keep(open_path, {cards[0].uuid: 300})
    said = init(open_path, open_path, cards, GQ_CUDA_STANDIN_INIT="999")
    assert said.count("estimates go by the 300 MiB that were measured before: cuInit answered 999") == 1
    assert context.kept(open_path) == {cards[0].uuid: 300}


def test_a_driver_without_cuda_is_no_failure(open_path: Path, cards: list[StandInCard]) -> None:
    libraries = open_path / "libraries"
    libraries.mkdir()
    shutil.copy(nvml_standin.library_directory() / nvml_standin.SONAME, libraries)
    (libraries / "libcuda.so.1").write_text("not a library: hides whatever the machine has")
    said = init(open_path, open_path / "state", cards, LD_LIBRARY_PATH=str(libraries))
    assert said.count("estimates go by the published figure: OSError: ") == 2
    assert "libcuda.so.1" in said


def test_a_card_that_others_use_meanwhile_tells_nothing(
    open_path: Path, cards: list[StandInCard], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver hides processes, and somebody takes more after the first reading: growth is nobody's in particular."""
    for name, value in nvml_standin.environment(open_path / "cards").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("GQ_CUDA_STANDIN_CONTEXT", "311")
    nvml_standin.load()
    cards[0].faults = dict.fromkeys(HIDING, NOT_SUPPORTED)
    nvml = NvmlCards()

    def read() -> NodeReading:
        cards[0].used_mib += 64
        nvml_standin.write_cards(open_path / "cards", cards)
        return nvml.read()

    found = context.measure(read, cards[0].uuid)
    nvml.close()
    assert found == context.Measured(None, "the driver hides who holds what, and the card's use does not keep still")


def test_a_machine_without_a_driver_is_no_failure(open_path: Path) -> None:
    (open_path / nvml_standin.SONAME).write_text("not a library: hides whatever the machine has")
    command = [sys.executable, "-m", "gpuqueue.daemon", "init", "--state-dir", str(open_path / "state")]
    env = base_env() | {"LD_LIBRARY_PATH": str(open_path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=True)
    assert "no card can be read" in done.stdout
    assert "no CUDA context is measured without a card" in done.stdout


@pytest.mark.parametrize("text", ["", "[]", '{"GPU-a": "300"}', '{"GPU-a": -1}', '{"GPU-a": true}', "\x00"])
def test_a_file_that_cannot_be_believed_is_nothing_measured(tmp_path: Path, text: str) -> None:
    (tmp_path / context.FILE).write_text(text)
    assert context.kept(tmp_path) == {}
    context.keep(tmp_path, {"GPU-b": 300})
    assert context.kept(tmp_path) == {"GPU-b": 300}
