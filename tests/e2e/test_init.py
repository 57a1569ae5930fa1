"""`gpuqueued init`: the state directory, the cards, and what a CUDA context takes on each, which estimates then use."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuqueue.gpu import context
from tests import nvml_standin
from tests.e2e.node import Node, base_env
from tests.nvml_standin import StandInCard

NOT_SUPPORTED = 3
HIDING = [f"nvmlDeviceGetComputeRunningProcesses_v{version}" for version in (2, 3)]

pytestmark = pytest.mark.e2e


@pytest.fixture
def cards(open_path: Path) -> list[StandInCard]:
    simdir = open_path / "sim"
    return [
        StandInCard(uuid="GPU-aaaa", bus="00000000:17:00.0", simdir=simdir),
        StandInCard(uuid="GPU-bbbb", bus="00000000:65:00.0", simdir=simdir),
    ]


def init(open_path: Path, state: Path, cards: list[StandInCard], **environment: str) -> str:
    nvml_standin.write_cards(open_path / "cards", cards)
    env = base_env() | nvml_standin.environment(open_path / "cards") | environment
    command = [sys.executable, "-m", "gpuqueue.daemon", "init", "--state-dir", str(state)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_context_is_measured_on_every_card_and_estimates_use_it(
    make_nvml_node: Callable[..., Node], open_path: Path, cards: list[StandInCard]
) -> None:
    node = make_nvml_node(config=f'[daemon]\nsample = "1s"\nnode_lock = "{open_path}/node.lock"\n')
    said = init(open_path, node.state, cards, GQ_CUDA_STANDIN_CONTEXT="311")
    assert said.count("a CUDA context takes 311 MiB") == 2
    node.start()
    assert [card["context_mib"] for card in node.gpus()] == [311, 311]
    told = json.loads(node.gq("estimate", "Qwen2.5-7B", "--json").stdout)
    (component,) = [one for one in told["components"] if one["name"] == "CUDA context"]
    assert (component["mib"], component["source"]) == (311, "gpuqueued init, or --context")
    own = json.loads(node.gq("estimate", "Qwen2.5-7B", "--context", "500M", "--json").stdout)
    assert own["occupied_mib"] - told["occupied_mib"] == 500 - 311


def test_where_the_driver_hides_who_holds_what_the_growth_tells(open_path: Path, cards: list[StandInCard]) -> None:
    for card in cards:
        card.faults = dict.fromkeys(HIDING, NOT_SUPPORTED)
    said = init(open_path, open_path / "state", cards, GQ_CUDA_STANDIN_CONTEXT="311")
    assert said.count("a CUDA context takes 311 MiB (by what the card's use grew") == 2


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({"GQ_CUDA_STANDIN_INIT": "999"}, "cuInit answered 999"),
        ({}, "the driver does not tell what the context holds"),
    ],
)
def test_what_cannot_be_measured_is_said_and_is_no_failure(
    open_path: Path, cards: list[StandInCard], environment: dict[str, str], why: str
) -> None:
    said = init(open_path, open_path / "state", cards, **environment)
    assert said.count(f"a CUDA context could not be measured: {why}") == 2
    assert context.kept(open_path / "state") == {}


def test_a_machine_without_a_driver_is_no_failure(open_path: Path) -> None:
    (open_path / nvml_standin.SONAME).write_text("not a library: hides whatever the machine has")
    command = [sys.executable, "-m", "gpuqueue.daemon", "init", "--state-dir", str(open_path / "state")]
    env = base_env() | {"LD_LIBRARY_PATH": str(open_path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=True)
    assert "no card can be read" in done.stdout


@pytest.mark.parametrize("text", ["", "[]", '{"GPU-a": "300"}', '{"GPU-a": -1}', '{"GPU-a": true}', "\x00"])
def test_a_file_that_cannot_be_believed_is_nothing_measured(tmp_path: Path, text: str) -> None:
    (tmp_path / context.FILE).write_text(text)
    assert context.kept(tmp_path) == {}
    context.keep(tmp_path, {"GPU-b": 300})
    assert context.kept(tmp_path) == {"GPU-b": 300}
