"""Driver trouble, and programs that were built for another CUDA or another card."""

from gpuqueue.diagnose.clue import Strength, wording
from gpuqueue.diagnose.finding import Cause, Retry

_DRIVER, _BUILD, _MODULE = Cause.driver, Cause.wrong_build, Cause.missing_module
_USUAL, _HINT = Strength.usual, Strength.hint
_MISMATCH = (
    "The driver was upgraded under the running kernel module: the node needs a reboot (or the modules reloaded)."
)
_FABRIC = (
    "The node's fabric manager or driver is not ready: `systemctl status nvidia-fabricmanager`; the admin must fix it."
)
_OLD = "The driver is older than this build needs: an older CUDA build of the package, or a newer driver on the node."
_NONE = (
    "The job saw no usable card: check `nvidia-smi`, the driver, and that the job claimed VRAM (with "
    "--vram 0 none is shown)."
)
_WRONG = "This build has no code for this card or no CUDA at all: install the package for the node's CUDA and card."
_LIBRARY = (
    "A CUDA library that this build was linked to is not there: the package is for another CUDA or PyTorch version."
)

TABLE = (
    wording(
        _DRIVER,
        r"Driver/library version mismatch|(?:NVML_ERROR_LIB_RM_VERSION_|LibRmVersion)MISMATCH",
        _MISMATCH,
        retry=Retry.free,
    ),
    wording(
        _DRIVER,
        r"system not yet initialized|\bError 80[234]:|cudaErrorSystemNotReady|CUDA_ERROR_SYSTEM_NOT_READY",
        _FABRIC,
        retry=Retry.free,
    ),
    wording(
        _DRIVER,
        r"unsupported display driver / cuda driver combination|forward compatibility was attempted",
        _MISMATCH,
        retry=Retry.free,
    ),
    wording(
        _DRIVER,
        r"NVIDIA driver on your system is too old|driver version is insufficient for CUDA runtime"
        r"|cudaErrorInsufficientDriver|compiled with an unsupported toolchain"
        r"|CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        _OLD,
    ),
    wording(
        _DRIVER,
        r"Found no NVIDIA driver on your system|CUDA driver initialization failed"
        r"|couldn't communicate with the NVIDIA driver|^No devices were found",
        _NONE,
    ),
    wording(
        _DRIVER,
        r"libcuda\.so(?:\.\d+)*: cannot open shared object file|libnvidia-ml\.so\S*: cannot open",
        _NONE,
    ),
    wording(
        _DRIVER,
        r"Failed to initialize NVML: (?:Unknown Error|Driver Not Loaded|Insufficient Permissions)",
        _NONE,
        strength=_USUAL,
    ),
    wording(
        _DRIVER,
        r"(?:Error|error): .*no CUDA-capable device is detected|No CUDA GPUs are available",
        _NONE,
        strength=_USUAL,
    ),
    wording(
        _DRIVER,
        r"(?:Error|error): CUDA unknown error|CUDA error: unknown error|CUDA_ERROR_UNKNOWN",
        _NONE,
        strength=_USUAL,
    ),
    wording(
        _DRIVER,
        r"CUDA-capable device\(?s?\)? (?:is/)?are busy or unavailable",
        "The card is in exclusive mode and taken, or in a bad state.",
        retry=Retry.once,
        strength=_USUAL,
    ),
    wording(_DRIVER, r"failed call to cuInit|CUDA initialization: ", _NONE, strength=_HINT),
    # Builds
    wording(
        _BUILD,
        r"no kernel image is available for execution|CUDA_ERROR_NO_BINARY_FOR_GPU"
        r"|device kernel image is invalid",
        _WRONG,
    ),
    wording(
        _BUILD,
        r"invalid device function|named symbol not found|hipErrorNoBinaryForGpu"
        r"|Unable to find code object for all",
        _WRONG,
    ),
    wording(
        _BUILD,
        r"(?:Torch|PyTorch) (?:is )?not compiled with (?:CUDA|ROCm|HIP) enabled"
        r"|not compiled with CUDA support",
        _WRONG,
    ),
    wording(
        _BUILD,
        r"with CUDA capability (?P<sm>sm_\d+\w?) is not compatible with the current PyTorch installation",
        "The card is {sm}, which this PyTorch was not built for. " + _WRONG,
        strength=_USUAL,
    ),
    wording(
        _BUILD,
        r"detected CUDA version \((?P<have>[\d.]+)\) mismatches the version that was used to compile",
        "The CUDA toolkit is {have}, PyTorch was built with another. " + _WRONG,
    ),
    wording(
        _BUILD,
        r"(?:ImportError|OSError):.*lib(?:cudart|cublas\w*|cudnn\w*|cusparse\w*|cufft|curand|cusolver"
        r"|nvrtc\S*|nccl|torch\w*|c10\w*|nvJitLink|cupti|amdhip64|rocblas"
        r"|hipblas\w*)[\w.-]*\.so\S*: cannot open shared object file",
        _LIBRARY,
    ),
    wording(
        _BUILD,
        r"(?:ImportError|OSError): .*undefined symbol|version `(?:GLIBCXX|GLIBC|CXXABI)_[\d.]+' not found",
        _LIBRARY,
    ),
    wording(
        _BUILD,
        r"cuDNN version incompatibility"
        r"|CUDNN_STATUS_(?:VERSION_MISMATCH|ARCH_MISMATCH|SUBLIBRARY_VERSION_MISMATCH)"
        r"|CUBLAS_STATUS_ARCH_MISMATCH",
        _LIBRARY,
    ),
    wording(
        _BUILD,
        r"CUDA Setup failed despite (?:GPU|CUDA) being available|compiled without (?:GPU|CUDA) support",
        _WRONG,
    ),
    wording(
        _BUILD,
        r"FlashAttention only supports (?P<cards>.*)GPUs",
        "This attention kernel is for {cards}GPUs only.",
    ),
    wording(
        _BUILD,
        r"(?:not supported on|requires).*compute capability|requires device with capability",
        _WRONG,
        strength=_USUAL,
    ),
    wording(_BUILD, r"CUDA-enabled jaxlib is not installed", _WRONG, strength=_HINT),
)
