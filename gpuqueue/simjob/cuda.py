"""What CUDA and PyTorch would do with simulated cards: which are visible, in what order, and how it ends when
one is full."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuqueue.gpu import simdir
from gpuqueue.gpu.simdir import CardFull, SimCard

_PIECES = 16  # a model is loaded in pieces: so much of it stands when the card runs out
_ADVICE = (
    "If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid"
    " fragmentation.  See documentation for Memory Management "
    " (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)


class OutOfMemoryError(RuntimeError):
    """Printed as PyTorch prints its own."""

    __module__ = "torch"


def visible_cards(cards: Sequence[SimCard], environment: Mapping[str, str]) -> list[SimCard]:
    """The cards that CUDA would show this process, its device 0 first. CUDA_VISIBLE_DEVICES holds indexes or
    UUIDs (or their beginnings); everything from the first entry on that names no card is ignored. Indexes count
    by PCI bus id with CUDA_DEVICE_ORDER=PCI_BUS_ID, else the largest card first, as CUDA's FASTEST_FIRST
    has no reason to agree with the PCI order."""
    by_pci = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    order = list(cards) if by_pci else sorted(cards, key=lambda card: -card.total_mib)
    wanted = environment.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return order
    visible: list[SimCard] = []
    for entry in (part.strip() for part in wanted.split(",")):
        if entry.isdigit():
            named = order[int(entry) : int(entry) + 1]
        else:
            named = [card for card in order if entry and card.uuid.startswith(entry)]
        if len(named) != 1 or named[0] in visible:
            break
        visible.extend(named)
    return visible


class Cuda:
    """This process's VRAM: the same amount on every card that CUDA_VISIBLE_DEVICES names, as the ranks of a
    distributed training hold it; on device 0 alone where the variable is unset."""

    def __init__(self, directory: Path) -> None:
        """Raises RuntimeError as torch does where no card is visible, SimDirError where there are none at all."""
        self._directory = directory
        visible = visible_cards(simdir.load_cards(directory), os.environ)
        if not visible:
            raise RuntimeError("No CUDA GPUs are available")
        self.cards = visible if "CUDA_VISIBLE_DEVICES" in os.environ else visible[:1]
        self.held_mib = 0
        self._gpu_percent = 0

    def hold(self, vram_mib: int, gpu_percent: int) -> None:
        """From now on holds so much, or raises OutOfMemoryError."""
        for ordinal, card in enumerate(self.cards):
            try:
                simdir.take(self._directory, card, vram_mib, gpu_percent)
            except CardFull as full:
                raise OutOfMemoryError(out_of_memory(ordinal, full, vram_mib, self.held_mib)) from None
        self.held_mib = vram_mib
        self._gpu_percent = gpu_percent

    def work(self, gpu_percent: int) -> None:
        """Changes the utilisation alone."""
        if gpu_percent != self._gpu_percent:
            self.hold(self.held_mib, gpu_percent)


def out_of_memory(ordinal: int, full: CardFull, wanted_mib: int, held_mib: int) -> str:
    """PyTorch's sentence (2.9 and later) for a process that holds `held_mib` and wants `wanted_mib` in all."""
    piece_mib = max((wanted_mib - held_mib) // _PIECES, 1)
    held_mib += max(full.free_mib - held_mib, 0) // piece_mib * piece_mib
    slack_mib = held_mib // 64
    held, slack = _size(held_mib), _size(slack_mib)
    total, free = _size(full.card.capacity_mib), _size(max(full.free_mib - held_mib, 0))
    words = [
        f"CUDA out of memory. Tried to allocate {_size(piece_mib)}.",
        f"GPU {ordinal} has a total capacity of {total} of which {free} is free.",
        *(f"Process {use.pid} has {_size(use.vram_mib)} memory in use." for use in full.others),
        f"Including non-PyTorch memory, this process has {held} memory in use.",
        f"Of the allocated memory {_size(held_mib - slack_mib)} is allocated by PyTorch,",
        f"and {slack} is reserved by PyTorch but unallocated.",
        _ADVICE,
    ]
    return " ".join(words)


def _size(mib: int) -> str:
    if mib == 0:
        return "0 bytes"
    return f"{mib / 1024:.2f} GiB" if mib >= 1024 else f"{mib}.00 MiB"
