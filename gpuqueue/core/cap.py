"""What a job with --cap is told to keep to (rule P5)."""

CONTEXT_MIB = 500  # CUDA's own part of a process: 140 to 650 have been measured, and no framework's limit covers it


def allocator_cap_mib(claim_mib: int) -> int:
    """What the framework's allocator may hold on each card: the claim without the context, and of a very small claim
    half."""
    return max(claim_mib - CONTEXT_MIB, claim_mib // 2)


def permille_of(mib: int, total_mib: int) -> int:
    """The part of a card in per mille, rounded down; 1 to 1000, as frameworks take neither none nor more than all."""
    return min(max(mib * 1000 // max(total_mib, 1), 1), 1000)
