"""Cards that exist only in a directory, for trying gpuqueue and for its tests: honest about it everywhere.

VRAM on them is taken by programs that know the directory, `python -m gpuqueue.simjob` above all. A CUDA
context takes nothing here, and nothing gets warm: what a card uses is the sum of what its processes took.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuqueue.core.readings import CardReading, GpuProcess, NodeReading
from gpuqueue.gpu import simdir
from gpuqueue.gpu.simdir import SimCard, SimUse


class SimulatedCards:
    """Satisfies engine.ports.Cards. The directory must be reachable by every user who runs jobs."""

    simulated = True

    def __init__(self, directory: str | os.PathLike[str], totals_mib: Sequence[int]) -> None:
        self._directory = Path(directory).absolute()
        self._cards = [_card(rank, total_mib) for rank, total_mib in enumerate(totals_mib)]
        simdir.create(self._directory, self._cards)

    def read(self) -> NodeReading:
        fault = None
        uses: list[SimUse] = []
        try:
            simdir.sweep(self._directory)
            uses = simdir.uses(self._directory)
        except OSError as error:
            fault = f"the directory of the simulated cards cannot be read: {error}"
        cards = tuple(
            _reading(index, card, [use for use in uses if use.card == card.uuid], fault)
            for index, card in enumerate(self._cards)
        )
        return NodeReading(cards=cards, fault=fault, driver="simulated")

    def job_environment(self) -> Mapping[str, str]:
        return {simdir.SIM_DIR_ENV: str(self._directory)}

    def close(self) -> None:
        """Nothing to do: what processes hold in the directory outlives the daemon."""


def _card(rank: int, total_mib: int) -> SimCard:
    # The UUID stays the same from start to start, since drained cards are remembered by it.
    return SimCard(
        uuid=f"SIM-{rank:04d}-{total_mib:08d}",
        name=f"Simulated {round(total_mib / 1024)} GB" if total_mib >= 1024 else f"Simulated {total_mib} MB",
        pci_bus_id=f"00000000:{rank + 1:02X}:00.0",
        total_mib=total_mib,
    )


def _reading(index: int, card: SimCard, uses: Sequence[SimUse], fault: str | None) -> CardReading:
    return CardReading(
        uuid=card.uuid,
        index=index,
        name=card.name,
        pci_bus_id=card.pci_bus_id,
        total_mib=card.total_mib,
        reserved_mib=card.reserved_mib,
        used_mib=sum(use.vram_mib for use in uses),
        processes=tuple(GpuProcess(pid=use.pid, used_mib=use.vram_mib, gpu_percent=use.gpu_percent) for use in uses),
        gpu_percent=min(sum(use.gpu_percent for use in uses), 100),
        fault=fault,
    )
