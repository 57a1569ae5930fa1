"""What the daemon of this node adds to an estimate: its cards, the user's quota, and how near estimates were so far.
Where none answers within a moment, there is nothing to add, and nothing is said."""

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuqueue.wire.errors import GpuqueueError
from gpuqueue.wire.units import format_mib

if TYPE_CHECKING:
    from gpuqueue.wire.jobs import CalibrationView, NodeView

ANSWER_WITHIN_S = 1.0


class Node(NamedTuple):
    cards_mib: tuple[int, ...]
    quota_mib: int | None  # of the user's train jobs
    context_mib: int | None  # of a bare CUDA context, where it was measured on every card; the largest


def node() -> Node | None:
    """This node's cards and this user's quota; None where no daemon answers."""
    found = _ask("/v1/node")
    if found is None:
        return None
    quotas = _ask("/v1/quotas")  # the asker's own comes first
    return Node(
        tuple(card.capacity_mib for card in found.cards),
        quotas[0].train_mib if quotas else None,
        _context_mib(found),
    )


def on_this_node() -> dict[str, Any]:
    """Of a Run on this node: `context`, and the largest card, of which vLLM takes a share; empty where no daemon
    answers or says so."""
    found = _ask("/v1/node")
    if found is None:
        return {}
    try:
        card_mib = max((card.capacity_mib for card in found.cards), default=0)
        return context(_context_mib(found)) | {"card_mib": card_mib}
    except GpuqueueError:  # a daemon of another release
        return {}


def _context_mib(found: "NodeView") -> int | None:
    contexts = [card.context_mib for card in found.cards]
    return max((mib for mib in contexts if mib is not None), default=None) if None not in contexts else None


def context(measured_mib: int | None) -> dict[str, Any]:
    """The fields of a Run on a node where a bare context takes that much: what a framework's kernels add was not
    measured, and stays the published figure. Empty where nothing was measured."""
    from gpuqueue.estimate.allocator import KERNELS_MIB

    if measured_mib is None:
        return {}
    return {"context_mib": measured_mib + KERNELS_MIB, "context_source": "measured"}


def calibration(model: str) -> "CalibrationView | None":
    """How this user's runs with that model's family compared with their estimates; None where too few are known."""
    found = _ask("/v1/calibration", model=model, account=os.environ.get("GQ_ACCOUNT") or None)
    return found if found and found.runs else None


def calibration_line(found: "CalibrationView", occupied_mib: int) -> str:
    """The correction, said."""
    corrected_mib = occupied_mib * found.permille // 1000
    factor = f"x {found.permille // 1000}.{found.permille % 1000 // 10:02d}"
    return f"calibrated on {found.runs} runs: {factor} -> will occupy {format_mib(corrected_mib)} ({found.family})"


def _ask(path: str, **query: str | None) -> Any:
    from gq import client

    try:
        with client.send("GET", path, query, timeout_s=ANSWER_WITHIN_S) as answer:
            return client.parsed(client.read_all(answer))
    except GpuqueueError:
        return None
