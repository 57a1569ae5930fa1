"""P1: which cards a job may have."""

import pytest

from gpuqueue.core.place import matching
from tests.builders import ask, card

CARDS = [card(0, name="NVIDIA A100-SXM4-80GB"), card(1, name="NVIDIA RTX A6000")]


@pytest.mark.parametrize(
    "gpu_type, indexes, found", [(None, (), [0, 1]), ("a100", (), [0]), (None, (1, 7), [1]), ("A6000", (0,), [])]
)
def test_type_and_index_narrow_the_choice(gpu_type: str | None, indexes: tuple[int, ...], found: list[int]) -> None:
    assert [one.index for one in matching(ask(gpu_type=gpu_type, gpu_indexes=indexes), CARDS)] == found
