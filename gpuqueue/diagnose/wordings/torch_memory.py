"""PyTorch's own words for "the card is full": CUDA, HIP, XPU, NPU and Metal builds."""

from gpuqueue.diagnose.clue import Strength, wording
from gpuqueue.diagnose.finding import Cause

_OOM = Cause.out_of_memory
_SMALLER = "Use a smaller micro-batch or shorter sequences, gradient checkpointing, or claim more VRAM."

TABLE = (
    wording(_OOM, r"(?:CUDA|HIP|XPU|NPU|MPS backend) out of memory\b.{0,200}Tried to allocate", _SMALLER),
    wording(
        _OOM,
        r"Allocation was preemptively rejected because it would exceed per_process_memory_fraction",
        _SMALLER,
    ),
    wording(_OOM, r"(?:Error|Exception): (?:CUDA|HIP|XPU|NPU) out of memory", _SMALLER),
    wording(_OOM, r"OutOfMemoryError: Allocation on device\b", _SMALLER),  # backend:cudaMallocAsync
    wording(_OOM, r"^\W*(?:CUDA|HIP) out of memory\W*$", _SMALLER, strength=Strength.usual),
    wording(
        _OOM,
        r"cuda runtime error \(2\) ?: out of memory|THCudaCheck FAIL .*error=2 : out of memory",
        _SMALLER,
    ),
    wording(_OOM, r"(?:CUDA|HIP) (?:runtime |driver )?error ?: ?out of memory", _SMALLER),
    wording(
        _OOM,
        r"cudaErrorMemoryAllocation|hipErrorOutOfMemory|(?<!device: )CUDA_ERROR_OUT_OF_MEMORY",
        _SMALLER,
        strength=Strength.usual,
    ),
    wording(_OOM, r"No executable batch size found, reached zero", "Not even a batch of one fits. " + _SMALLER),
    wording(_OOM, r"Triton Error \[(?:CUDA|HIP)\]: out of memory", _SMALLER),
    wording(
        _OOM,
        r"NVML_SUCCESS == r.{0,20}INTERNAL ASSERT FAILED at .{0,200}CUDACachingAllocator",
        "This assertion usually hides an out-of-memory error: the allocator failed to describe it. " + _SMALLER,
        strength=Strength.usual,
    ),
    wording(
        _OOM,
        r"memory allocation failed with OOM on device \d+ while trying to allocate",
        "A warning that PyTorch prints before it frees its cache and tries again. " + _SMALLER,
        strength=Strength.hint,
    ),
    wording(
        Cause.program_error,
        r"Unrecognized CachingAllocator option|Unrecognized key '.*' in .*allocator config",
        "PYTORCH_CUDA_ALLOC_CONF holds a key that this PyTorch does not know; remove it.",
    ),
)
