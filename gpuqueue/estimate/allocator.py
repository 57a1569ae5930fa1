"""PyTorch's caching allocator and the CUDA context: from live tensors to what nvidia-smi shows."""

MIB = 1 << 20
ROUND = 512
SMALL = MIB
LARGE_ALLOCATION = 10 * MIB
SEGMENT_ROUND = 2 * MIB

# Published of an A100: 414 MiB in a process that has a context and does nothing, 450 in the middle of those that train.
BARE_CONTEXT_MIB = 414
KERNELS_MIB = 36  # PyTorch's and cuBLAS's kernels, loaded as they are used

SOURCE = "PyTorch CUDACachingAllocator.cpp: kMinBlockSize, kSmallSize, kMinLargeAlloc, kRoundLarge"


def block(size: float) -> int:
    """Bytes that one tensor counts for in torch.cuda.memory_allocated().

    Sizes round to 512 B. From 10 MiB on a tensor gets a segment rounded to 2 MiB, and a rest of at
    most 1 MiB is not split off but stays part of the block.
    """
    rounded = -(-int(size) // ROUND) * ROUND
    if rounded < LARGE_ALLOCATION:
        return rounded
    segment = -(-rounded // SEGMENT_ROUND) * SEGMENT_ROUND
    return segment if segment - rounded <= SMALL else rounded
