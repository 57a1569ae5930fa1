"""How JAX, TensorFlow, vLLM, other servers and llama.cpp say that the card is full."""

from gpuqueue.diagnose.clue import Strength, wording
from gpuqueue.diagnose.finding import Cause, Phase, Retry

_OOM = Cause.out_of_memory
_XLA = (
    "XLA takes three quarters of the card at start, so a neighbour or its own claim may leave too little: "
    "set XLA_PYTHON_CLIENT_MEM_FRACTION to the claim's share of the card, or use a smaller batch."
)
_TF = "TensorFlow could not place a tensor on the card. Use a smaller batch, or claim more VRAM."
_SERVER = "Lower the model length or the number of sequences, quantise the KV cache, or claim more VRAM."
_LLAMA = "Offload fewer layers (-ngl), use a smaller context (-c) or batch, or a smaller quantisation."

TABLE = (
    wording(_OOM, r"(?:RESOURCE_EXHAUSTED|Resource exhausted): .{0,80}(?:out of memory|failed to allocate)", _XLA),
    wording(_OOM, r"(?:INTERNAL|XlaRuntimeError).{0,80}CUDA_ERROR_OUT_OF_MEMORY", _XLA),
    wording(
        Cause.host_out_of_memory,
        r"OOM when allocating tensor.*device:CPU:\d+ by allocator",
        "TensorFlow ran out of host memory, not of VRAM: smaller shuffle and prefetch buffers, or more memory.",
    ),
    wording(_OOM, r"OOM when allocating tensor with shape ?\[[^\]]*\](?!.*device:CPU:)", _TF),
    wording(
        _OOM,
        r"Dst tensor is not initialized|Failed to get convolution algorithm\. This is probably because cuDNN",
        _TF,
        strength=Strength.usual,
    ),
    wording(
        _OOM,
        r"DNN library initialization failed|Failed to create cu(?:blas|dnn|solver) handle",
        _XLA,
        strength=Strength.usual,
    ),
    wording(_OOM, r"InternalError: .*Status: out of memory", _TF),
    wording(_OOM, r"\bResourceExhaustedError\b", _TF, strength=Strength.usual),
    wording(
        _OOM,
        r"failed to allocate \S+ \(\d+ bytes\) from device: CUDA_ERROR_OUT_OF_MEMORY",
        "The first try of a pool that is then made smaller: " + _TF,
        strength=Strength.hint,
    ),
    wording(
        _OOM,
        r"No available memory for the cache blocks",
        "The weights leave no room for a KV cache. " + _SERVER,
        phase=Phase.load,
    ),
    wording(
        Cause.neighbour,
        r"Free memory on device\D{0,12}(?:\d\D{0,4})?"
        r"\((?P<free>\d+(?:\.\d+)?)/(?P<total>\d+(?:\.\d+)?) GiB\) on startup is less than "
        r"desired GPU memory utilization(?:.*?, (?P<wanted>\d+(?:\.\d+)?) GiB)?",
        "vLLM wants {wanted} of {total} GiB, but others left only {free} GiB: set gpu_memory_utilization "
        "to the claim's share of the card, or wait for a card with more room.",
        retry=Retry.free,
        phase=Phase.load,
    ),
    wording(
        Cause.neighbour,
        r"Error in memory profiling",
        "Another process released VRAM while vLLM was measuring; start it again.",
        retry=Retry.free,
        phase=Phase.load,
    ),
    wording(
        _OOM,
        r"max(?:imum)? (?:model len|seq len|model length"
        r"|sequence length)\s*\(?(?P<length>\d+)\)?.*(?:larger than the (?:maximum number of tokens"
        r"|available KV cache)|KV cache is needed)",
        "The KV cache for {length} tokens does not fit: lower max_model_len. " + _SERVER,
        phase=Phase.load,
    ),
    wording(
        _OOM,
        r"CUDA out of memory occurred when warming up sampler",
        "Lower max_num_seqs. " + _SERVER,
        phase=Phase.load,
    ),
    wording(_OOM, r"Not enough memory\. Please try to increase --mem-fraction-static", _SERVER, phase=Phase.load),
    wording(_OOM, r"(?:Prefill|Decode) out of memory\. Try to lower", _SERVER),
    wording(_OOM, r"Not enough memory to handle \d+ (?:prefill|total) tokens", _SERVER),
    wording(_OOM, r"\[TensorRT-LLM\].*out of memory|\[TRT\].*OutOfMemory", _SERVER),
    wording(
        _OOM,
        r"Some modules are dispatched on the CPU or the disk\. Make sure you have enough GPU RAM",
        "The quantised model does not fit into the free VRAM; claim more, or use a smaller model.",
        phase=Phase.load,
    ),
    wording(
        _OOM,
        r"allocating (?P<asked>[\d.]+) MiB on device \d+: cudaMalloc failed: out of memory",
        "A buffer of {asked} MiB did not fit. " + _LLAMA,
        phase=Phase.load,
    ),
    wording(_OOM, r"failed to allocate buffer for kv cache|ErrorOutOfDeviceMemory", _LLAMA, phase=Phase.load),
    wording(_OOM, r"cudaMalloc failed: out of memory", _LLAMA, phase=Phase.load),
    wording(_OOM, r"(?:unable|failed) to allocate (?:CUDA|ROCm)\d+ buffer", _LLAMA, phase=Phase.load),
    wording(
        _OOM,
        r"failed to allocate compute (?:pp |tg )?buffers",
        _LLAMA,
        strength=Strength.usual,
        phase=Phase.load,
    ),
    wording(_OOM, r"CUDA error 2 at .*: out of memory", _LLAMA),
    wording(
        Cause.host_out_of_memory,
        r"model requires more system memory \([^)]*\) than is available"
        r"|ggml_aligned_malloc: insufficient memory|unable to allocate CPU buffer",
        "The model needs host memory that is not there: a smaller quantisation, or a larger --mem.",
        phase=Phase.load,
    ),
)
