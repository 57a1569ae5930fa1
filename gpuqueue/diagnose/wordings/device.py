"""What a program or a broken card does on the device: asserts, illegal access, dead hardware."""

from gpuqueue.diagnose.clue import Strength, wording
from gpuqueue.diagnose.finding import Cause, Retry

_CARD = "The card is at fault, not the job: drain it and run the job elsewhere or after a reset."
_ASSERT = (
    "The program gave the card a value out of range: usually a token id beyond the embedding, or a label "
    "beyond the number of classes. Run once on the CPU or with CUDA_LAUNCH_BLOCKING=1 to see where."
)
_ACCESS = (
    "A kernel used memory that it does not own. Look for an Xid in the kernel log first; without one it is "
    "a bug of the program or of an extension: run with CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer."
)
_HARD, _ILLEGAL = Cause.hardware, Cause.illegal_access

TABLE = (
    wording(
        _HARD,
        r"uncorrectable (?:ECC|NVLink) error|cudaErrorECCUncorrectable|CUDA_ERROR_ECC_UNCORRECTABLE",
        _CARD,
        retry=Retry.free,
    ),
    wording(
        _HARD,
        r"(?<!check if GPU has )fallen off the bus|\bGPU is lost\b|GPU requires reset|NVML_ERROR_GPU_IS_LOST",
        _CARD,
        retry=Retry.free,
    ),
    wording(_HARD, r"Unable to determine the device handle for GPU|double.bit ECC error", _CARD, retry=Retry.free),
    wording(
        _HARD,
        r"(?:CUDA|HIP) error: (?:hardware stack error|unknown hardware|contained|.*NVLink)",
        _CARD,
        retry=Retry.free,
        strength=Strength.usual,
    ),
    wording(
        Cause.assertion,
        # Not the advice that PyTorch 2 adds to every CUDA error: "to enable device-side assertions".
        r"device-side assert(?:ion)?\b|cudaErrorAssert|CUDA_ERROR_ASSERT",
        _ASSERT,
    ),
    wording(Cause.assertion, r"\.(?:cu|cuh|h|hip):\d+: .*(?:block|thread): \[.*Assertion .* failed", _ASSERT),
    wording(
        Cause.assertion,
        r"Assertion `?(?:srcIndex < srcSelectDimSize|t >= 0 && t < n_classes|cur_target)",
        _ASSERT,
    ),
    wording(Cause.assertion, r"HSA_STATUS_ERROR_EXCEPTION|Device-side assertion", _ASSERT, strength=Strength.usual),
    wording(
        _ILLEGAL,
        r"an illegal (?:memory access|instruction) was encountered|cudaErrorIllegal\w+"
        r"|CUDA_ERROR_ILLEGAL_\w+",
        _ACCESS,
        retry=Retry.once,
    ),
    wording(
        _ILLEGAL,
        r"unspecified launch failure|misaligned address|CUDA_ERROR_LAUNCH_FAILED|cudaErrorLaunchFailure"
        r"|invalid program counter|operation not supported on global/shared address space",
        _ACCESS,
        retry=Retry.once,
    ),
    wording(
        _ILLEGAL,
        r"Memory access fault by GPU|HSA_STATUS_ERROR_MEMORY_(?:APERTURE_VIOLATION|FAULT)",
        _ACCESS,
        retry=Retry.once,
    ),
    wording(
        _ILLEGAL,
        r"(?:CUBLAS|CUDNN)_STATUS_(?:EXECUTION_FAILED|MAPPING_ERROR)",
        _ACCESS,
        retry=Retry.once,
        strength=Strength.usual,
    ),
)
