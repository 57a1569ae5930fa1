"""What the hook counts in a real PyTorch (CPU): the same code as on a card, told to count that kind of device."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HOOK = Path(__file__).resolve().parents[2] / "gpuqueue/hook"
BEGIN = """
import gc, json, sys, torch, gpuqueue_parts
linear = lambda inputs, outputs: torch.nn.Linear(inputs, outputs, bias=False)  # 1024 x 1024 of them are 4 MiB
watch = gpuqueue_parts.Watch(torch, "cpu")
watch.start()
def train(model, *optimizers, steps=3):
    for _ in range(steps):
        model(torch.ones(1, 1024)).sum().backward()
        for optimizer in optimizers: optimizer.step()
        for optimizer in optimizers: optimizer.zero_grad()
"""
END = """
print(json.dumps({"parts": watch.parts_mib(0, 100), "fault": watch.fault}))
"""

pytestmark = pytest.mark.ml


def counted(text: str) -> dict[str, Any]:
    """What the watch has found after that program; rounded up, since a state has a step counter as well."""
    pytest.importorskip("torch", reason="PyTorch is not installed: make test-ml")
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + text + END],
        env={**os.environ, "PYTHONPATH": str(HOOK), "GQ_CAP_MIB": "1000"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def parts(frozen: int, trained: int, gradients: int, optimizer: int) -> dict[str, Any]:
    sizes = {"frozen_mib": frozen, "trained_mib": trained, "gradients_mib": gradients, "optimizer_mib": optimizer}
    return {"parts": {**sizes, "rest_mib": 100 - sum(sizes.values())}, "fault": None}


def test_frozen_and_trained_weights_gradients_and_states_are_told_apart() -> None:
    text = """
model = torch.nn.Sequential(linear(1024, 4096).requires_grad_(False), linear(4096, 256))
model.register_buffer("mask", torch.zeros(1024, 1024))
train(model, torch.optim.AdamW(model[1].parameters()))
"""
    assert counted(text) == parts(20, 4, 4, 9)


def test_every_optimizer_counts_and_tied_weights_once() -> None:
    text = """
model = torch.nn.Sequential(linear(1024, 1024), linear(1024, 1024), linear(1024, 1024))
model[2].weight = model[0].weight
model.view = model[0].weight.detach().view(-1)
train(model, torch.optim.AdamW([model[0].weight]), torch.optim.SGD([model[1].weight], momentum=0.9))
"""
    assert counted(text) == parts(0, 8, 8, 13)


def test_an_optimizer_for_each_weight_that_steps_within_the_backward_pass() -> None:
    text = """
model = torch.nn.Sequential(*(linear(1024, 1024) for _ in range(6)))
own = {weight: torch.optim.SGD([weight], momentum=0.9) for weight in model.parameters()}
def step(weight):
    own[weight].step()
    own[weight].zero_grad()
for weight in own: weight.register_post_accumulate_grad_hook(step)
train(model, steps=3)
"""
    assert counted(text) == parts(0, 24, 4, 24)


def test_fp32_copies_that_an_optimizer_holds_are_its_own() -> None:
    text = """
model = linear(1024, 1024).bfloat16()
master = model.weight.detach().float().requires_grad_()
model(torch.ones(1, 1024).bfloat16()).sum().backward()
master.grad = model.weight.grad.float()
model.weight.grad = None
torch.optim.SGD([master], lr=0.1, momentum=0.9).step()
"""
    assert counted(text) == parts(0, 2, 4, 8)


def test_a_quantised_weight_counts_with_its_scales_and_a_sparse_gradient_as_stored() -> None:
    text = """
class QuantState:
    def __init__(self, *sizes):
        self.absmax = torch.zeros(sizes[0])
        self.state2 = QuantState(*sizes[1:]) if sizes[1:] else None
class Params4bit(torch.nn.Parameter): pass
base = torch.nn.Module()
base.weight = Params4bit(torch.zeros(1 << 20, dtype=torch.uint8), requires_grad=False)
base.weight.quant_state = QuantState(1 << 18, 1 << 18)
table = torch.nn.Embedding(4096, 256, sparse=True)
table(torch.arange(1024)).sum().backward()
torch.optim.SGD(table.parameters(), lr=0.1).step()
"""
    assert counted(text) == parts(1 + 2, 4, 2, 0)


def test_parts_of_a_tensor_that_consists_of_others_are_counted() -> None:
    text = """
from torch.testing._internal.two_tensor import TwoTensor
model = torch.nn.Module()
model.weight = torch.nn.Parameter(TwoTensor(torch.zeros(1024, 1024), torch.zeros(1024, 1024)), requires_grad=False)
trained = linear(1024, 256)
train(trained, torch.optim.SGD(trained.parameters(), lr=0.1))
"""
    assert counted(text) == parts(8, 1, 1, 0)


def test_nothing_is_kept_alive() -> None:
    text = """
import weakref
model = linear(1024, 1024)
optimizer = torch.optim.AdamW(model.parameters())
train(model, optimizer)
known = [weakref.ref(one) for one in (model, model.weight, optimizer, optimizer.state[model.weight]["exp_avg"])]
del model, optimizer
gc.collect()
assert [one() for one in known] == [None] * 4
"""
    assert counted(text) == parts(0, 4, 4, 9)


def test_a_step_that_is_compiled_is_made_as_it_would_be_without() -> None:
    text = """
def after_three_steps(start):
    torch.manual_seed(0)
    model = linear(1024, 16)
    start()
    step = torch.compile(torch.optim.AdamW(model.parameters(), lr=0.1).step, backend="eager")
    for _ in range(3):
        model(torch.ones(1, 1024)).sum().backward()
        step()
    breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    return model.weight.detach(), breaks
sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks.clear()
without, breaks = after_three_steps(lambda: None)
watched, watched_breaks = after_three_steps(watch.start)
assert torch.equal(without, watched)
assert watched_breaks == breaks, (breaks, watched_breaks)
"""
    assert counted(text)["fault"] is None


def test_modules_that_are_hidden_are_said_and_no_number_is_made_up() -> None:
    found = counted("model = linear(1024, 1024); gc.freeze(); train(model, torch.optim.SGD(model.parameters()))")
    assert found["parts"] is None
    assert "gc.freeze" in found["fault"]


def test_it_stops_looking() -> None:
    text = """
model = linear(1024, 1)
train(model, torch.optim.SGD(model.parameters(), lr=0.1), steps=600)
assert watch._steps is None
"""
    assert counted(text)["fault"] is None
