import pytest

from gpuqueue.core.cap import CONTEXT_MIB, allocator_cap_mib, permille_of


@pytest.mark.parametrize(("claim_mib", "cap_mib"), [(8192, 7692), (1000, 500), (900, 450), (1, 0)])
def test_cuda_itself_has_its_part_of_the_claim(claim_mib: int, cap_mib: int) -> None:
    assert allocator_cap_mib(claim_mib) == cap_mib
    assert claim_mib - cap_mib <= CONTEXT_MIB


@pytest.mark.parametrize(
    ("mib", "total_mib", "permille"), [(8000, 32000, 250), (1, 32000, 1), (9, 8, 1000), (1, 0, 1000)]
)
def test_a_fraction_is_never_none_nor_more_than_all(mib: int, total_mib: int, permille: int) -> None:
    assert permille_of(mib, total_mib) == permille
