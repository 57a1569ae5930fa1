"""The faces that "the card is full" wears in CUDA's libraries, in NCCL and in bitsandbytes."""

from gpuqueue.diagnose.clue import Strength, wording
from gpuqueue.diagnose.finding import Cause

_OOM = Cause.out_of_memory
_FACE = (
    "The library could not get its workspace: the card was full at that moment. Leave it room: a smaller "
    "batch, or a larger claim."
)
_USUAL = Strength.usual

TABLE = (
    wording(_OOM, r"CUBLAS_STATUS_ALLOC_FAILED", _FACE),
    wording(_OOM, r"CUBLAS_STATUS_NOT_INITIALIZED", _FACE, strength=_USUAL),
    wording(_OOM, r"CUDNN_STATUS_(?:ALLOC_FAILED|INTERNAL_ERROR_(?:HOST|DEVICE)_ALLOCATION_FAILED)", _FACE),
    wording(_OOM, r"CUDNN_STATUS_(?:NOT_INITIALIZED|INTERNAL_ERROR)\b", _FACE, strength=_USUAL),
    wording(_OOM, r"Unable to find a valid cuDNN algorithm to run convolution", _FACE, strength=_USUAL),
    wording(_OOM, r"GET was unable to find an engine to execute this computation", _FACE, strength=_USUAL),
    wording(_OOM, r"(?:CUSOLVER|CUSPARSE|CUFFT|CURAND)_(?:STATUS_)?ALLOC(?:ATION)?_FAILED", _FACE),
    wording(_OOM, r"HIPBLAS_STATUS_ALLOC_FAILED|rocblas_status_memory_error|MIOpen Error: .*alloc", _FACE),
    wording(_OOM, r"miopenStatus(?:AllocFailed|NotInitialized)", _FACE, strength=_USUAL),
    wording(
        _OOM,
        r"Cuda failure (?:\d+ )?'?out of memory'?|Failed to CUDA (?:calloc|malloc) \d+ bytes",
        "NCCL found no room for its buffers on the card. Leave it 0.5 to 1 GiB, or claim that much more.",
    ),
    wording(
        _OOM,
        r"^Error out of memory at line \d+ in file .*(?:pythonInterface|ops\.cu)",
        "bitsandbytes could not get (managed) memory and ended the process. The card, or the host memory "
        "that paged optimizers spill to, was full: a smaller batch, or a larger claim.",
    ),
    wording(_OOM, r"cupy\S*OutOfMemoryError: Out of memory allocating (?P<asked>[\d,]+) bytes", _FACE),
    wording(_OOM, r"std::bad_alloc: (?:out_of_memory|CUDA error|RMM failure)|RMM.*out.of.memory", _FACE),
    wording(_OOM, r"Failed to cudaMalloc \d+ bytes|cudaMalloc retry failed: out of memory", _FACE),
    wording(_OOM, r"Out of memory error on GPU \d+\. Cannot allocate (?P<asked>\S+) memory", _FACE),
    wording(_OOM, r"Failed to allocate memory for requested buffer of size (?P<asked>\d+)", _FACE, strength=_USUAL),
)
