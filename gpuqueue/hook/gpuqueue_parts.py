"""What PyTorch's tensors in a job with --cap are there for: weights, gradients, optimizer states, counted on each card
after some of its optimizer steps.

Runs in the job's own Python (3.8 or newer), stdlib only. It looks at sizes alone, keeps no tensor and no optimizer
alive, and never breaks a step: the first fault ends the counting, and goes into the report.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1024 * 1024
PARTS = ("frozen", "trained", "gradients", "optimizer")
# All optimizers have made their states by then, even where each weight has one of its own.
LOOK_AFTER = frozenset(1 << power for power in range(10))
LONGEST_LOOK_S = 1.0  # a look goes through all objects of the process; where that takes longer, it was the last
KEPT_BESIDE = ("quant_state", "SCB", "CB")  # bitsandbytes: what a quantised weight has next to its data


class Watch:
    """Counts the parts after optimizer steps. `fullest` holds, for each card, those of the step that had most;
    `fault` is what ended the counting early."""

    def __init__(self, torch: Any, kind: str = "cuda") -> None:
        import gc
        import weakref

        self.fullest: dict[int, dict[str, int]] = {}
        self.fault: str | None = None
        self._torch, self._kind = torch, kind
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._hidden = gc.get_freeze_count()
        self._steps: int | None = 0  # None: no more looks

    def start(self) -> None:
        """From now on. A PyTorch without a hook for all optimizers (before 2.1) is not asked."""
        # torch.optim takes the module's name out of its own namespace.
        register = getattr(sys.modules.get("torch.optim.optimizer"), "register_optimizer_step_post_hook", None)
        if register is None:
            return
        compiling = getattr(getattr(self._torch, "compiler", None), "is_compiling", None)

        def look(optimizer: Any, _args: Any, _options: Any) -> None:
            if compiling is not None and compiling():  # torch.compile traces this: nothing of it may be in the graph
                return
            self._after_step(optimizer)

        register(look)

    def _after_step(self, optimizer: Any) -> None:
        if self._steps is None:  # the hook cannot be taken away from within: torch is going through its hooks
            return
        import time

        begin = time.monotonic()
        try:
            self._steps += 1
            self._optimizers.add(optimizer)
            if self._steps in LOOK_AFTER:
                self._keep(self._count())
                if time.monotonic() - begin > LONGEST_LOOK_S or self._steps == max(LOOK_AFTER):
                    self._steps = None
        except Exception as error:  # noqa: BLE001 - the job's step has been made, and that is what counts
            self._steps, self.fault = None, repr(error)[:200]

    def _keep(self, found: dict[int, dict[str, int]]) -> None:
        for device, parts in found.items():
            if sum(parts.values()) >= sum(self.fullest.get(device, {}).values()):
                self.fullest[device] = parts

    def _count(self) -> dict[int, dict[str, int]]:
        """Bytes of PARTS by card. A storage counts once, for the first part that has it."""
        torch, optimizers = self._torch, list(self._optimizers)
        counted: dict[int, dict[str, int]] = {}
        seen: set[tuple[int, int]] = set()

        def add(part: str, tensor: Any) -> None:
            for piece in pieces(torch, tensor):
                device, storage = piece.device, piece.untyped_storage()
                key = (device.index or 0, storage.data_ptr())
                if device.type == self._kind and storage.nbytes() and key not in seen:
                    seen.add(key)
                    of_card = counted.setdefault(key[0], dict.fromkeys(PARTS, 0))
                    of_card[part] += storage.nbytes()

        parameters, buffers = self._of_modules()
        in_modules = {id(one) for one in parameters}
        known = any(one.requires_grad for one in parameters)
        stepped = [one for each in optimizers for group in each.param_groups for one in group["params"]]
        for one in parameters:
            add("trained" if one.requires_grad else "frozen", one)
        for one in buffers:
            add("frozen", one)
        for one in stepped:
            # Beside a model that is trained, a plain tensor is an optimizer's fp32 copy of its weights.
            copy = known and id(one) not in in_modules and not issubclass(type(one), torch.nn.Parameter)
            add("optimizer" if copy else "trained", one)
        for one in [*parameters, *stepped]:
            if one.requires_grad and one.grad is not None:
                add("gradients", one.grad)
        for optimizer in optimizers:
            for one in tensors_in(torch, list(optimizer.state.values())):
                add("optimizer", one)
        return counted

    def _of_modules(self) -> tuple[list[Any], list[Any]]:
        """(parameters, buffers) of every module that lives, the trained model's or not."""
        import gc

        if gc.get_freeze_count() > self._hidden:
            raise RuntimeError("the job has called gc.freeze, which hides its modules")
        of_modules = [vars(one) for one in gc.get_objects() if issubclass(type(one), self._torch.nn.Module)]

        def named(kind: str) -> list[Any]:
            return [one for each in of_modules for one in (each.get(kind) or {}).values() if one is not None]

        return named("_parameters"), named("_buffers")

    def parts_mib(self, device: int, peak_mib: int) -> dict[str, int] | None:
        """What a card's peak consists of: PARTS, and as `rest_mib` what it had beyond them. They lived together after a
        step, so they are no more than the peak. None where nothing was counted there."""
        found = self.fullest.get(device)
        if not found:
            return None
        parts = {f"{part}_mib": -(-found[part] // MIB) for part in PARTS}
        return {**parts, "rest_mib": max(0, peak_mib - sum(parts.values()))}


def pieces(torch: Any, tensor: Any) -> Iterator[Any]:
    """The plain tensors that a tensor consists of: shards, codes and scales, indices and values."""
    if hasattr(type(tensor), "__tensor_flatten__"):  # DTensor, torchao
        for name in tensor.__tensor_flatten__()[0]:
            yield from pieces(torch, getattr(tensor, name))
    elif tensor.layout is torch.sparse_coo:
        yield from (tensor._indices(), tensor._values())
    else:
        yield tensor
    beside = getattr(tensor, "__dict__", {})
    for name in KEPT_BESIDE:
        if beside.get(name) is not None:
            for one in tensors_in(torch, beside[name]):
                yield from pieces(torch, one)


def tensors_in(torch: Any, value: Any, depth: int = 4) -> Iterator[Any]:
    """The tensors in a state: itself, or in dicts, lists and bitsandbytes' records, a few levels deep."""
    if torch.is_tensor(value):
        yield value
    elif depth:
        inner: Any = ()
        if isinstance(value, dict):
            inner = list(value.values())
        elif isinstance(value, (list, tuple)):
            inner = value
        elif type(value).__name__ == "QuantState":
            inner = list(vars(value).values())
        for one in inner:
            yield from tensors_in(torch, one, depth - 1)
