"""A node whose daemon reads its cards through the real pynvml, from the stand-in for NVIDIA's library; what jobs and
strangers hold there is real to both."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gpuqueue.gpu.simdir import SIM_DIR_ENV
from tests import nvml_standin
from tests.e2e.node import Node
from tests.nvml_standin import StandInCard


class RealCards:
    """`show` changes what NVML says while the daemon runs. The cards are in NVML's order, which is no other's."""

    def __init__(
        self, make_node: Callable[..., Node], directory: Path, cards: Sequence[StandInCard], config: str = ""
    ) -> None:
        self.cards = list(cards)
        self._file = directory / "cards"
        self.show(self.cards)
        env = nvml_standin.environment(self._file) | {SIM_DIR_ENV: str(cards[0].simdir)}
        lock = f'[daemon]\nsample = "1s"\nnode_lock = "{directory}/node.lock"\n'
        self.node = make_node(cards="", config=lock + config, env=env)

    def show(self, cards: Sequence[StandInCard], faults: Mapping[str, int] | None = None) -> None:
        nvml_standin.write_cards(self._file, cards, faults=faults)
