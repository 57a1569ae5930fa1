"""An estimate in the parts that a job counts itself: they add up, and say the same of the same bytes."""

import pytest

from gpuqueue.estimate.allocator import MIB
from gpuqueue.estimate.catalogue import find
from gpuqueue.estimate.estimate import estimate
from gpuqueue.estimate.parts import parts
from gpuqueue.estimate.run import OPTIMIZERS, Run

QWEN = find("Qwen2.5-0.5B")


@pytest.mark.parametrize("method", ["full", "lora", "qlora"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("seq_len", [64, 2048])
def test_the_parts_are_the_peak(method: str, optimizer: str, seq_len: int) -> None:
    weights = "nf4" if method == "qlora" else "bf16"
    run = Run(QWEN, method=method, weights=weights, optimizer=optimizer, seq_len=seq_len, autocast=False)
    found = estimate(run)
    told = parts(run, found)
    assert min(told) >= 0
    assert found.torch_peak_mib <= sum(told) <= found.torch_peak_mib + len(told)  # each is rounded up


def test_full_training_has_no_frozen_weights_and_an_adapter_leaves_the_model_frozen() -> None:
    run = Run(QWEN, method="full", autocast=False)
    full = parts(run, estimate(run))
    size = 2 * QWEN.params / MIB
    assert full.frozen_mib == 0
    assert (full.trained_mib, full.gradients_mib) == (pytest.approx(size, rel=0.01), pytest.approx(size, rel=0.01))
    assert full.optimizer_mib == pytest.approx(2 * size, rel=0.01)  # without the scratch of a step
    lora = parts(Run(QWEN), estimate(Run(QWEN)))
    assert lora.frozen_mib == pytest.approx(full.trained_mib, rel=0.01)
    assert lora.trained_mib == lora.gradients_mib
    assert lora.optimizer_mib == pytest.approx(2 * lora.trained_mib, abs=1)


def test_a_reference_model_is_frozen() -> None:
    run = Run(QWEN, method="full", autocast=False, trainer="dpo")
    told = parts(run, estimate(run))
    assert told.frozen_mib == told.trained_mib
