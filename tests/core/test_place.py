"""P1, P2: which cards a job may have, and how it sees them."""

import pytest

from gpuqueue.core.place import matching, pinned_environment
from tests.builders import ask, card

CARDS = [card(0, name="NVIDIA A100-SXM4-80GB"), card(1, name="NVIDIA RTX A6000")]


@pytest.mark.parametrize(
    "gpu_type, indexes, found", [(None, (), [0, 1]), ("a100", (), [0]), (None, (1, 7), [1]), ("A6000", (0,), [])]
)
def test_type_and_index_narrow_the_choice(gpu_type: str | None, indexes: tuple[int, ...], found: list[int]) -> None:
    assert [one.index for one in matching(ask(gpu_type=gpu_type, gpu_indexes=indexes), CARDS)] == found


def test_a_job_sees_its_cards_by_pci_rank() -> None:
    assert pinned_environment([CARDS[1]], "index") == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "1",
        "NVIDIA_VISIBLE_DEVICES": "GPU-1",
    }
    assert pinned_environment([CARDS[1]], "uuid")["CUDA_VISIBLE_DEVICES"] == "GPU-1"


def test_a_job_without_a_card_sees_none() -> None:
    """Scenario 18: empty, which CUDA takes for no device at all; unset would mean all of them."""
    assert pinned_environment([], "index")["CUDA_VISIBLE_DEVICES"] == ""
    assert pinned_environment([], "index")["NVIDIA_VISIBLE_DEVICES"] == "void"
