"""What the model's weights take, by the rules of the file formats."""

from typing import NamedTuple

from gpuqueue.estimate.allocator import block
from gpuqueue.estimate.run import Run

GROUP = 128  # weights that share a scale in GPTQ and AWQ files, unless said otherwise
NF4_BLOCK = 64
NF4_NESTED_BLOCK = 256
FP8_TILE = 128 * 128
MX_BLOCK = 32

SOURCES = {
    "fp32": "4 B a weight",
    "bf16": "2 B a weight",
    "fp16": "2 B a weight",
    "int8": "bitsandbytes LLM.int8: 1 B a weight, one fp32 scale an output row",
    "nf4": "bitsandbytes: 4 bits a weight, one fp32 absmax for 64 weights",
    "nf4-dq": "bitsandbytes double quantisation: absmax as int8, one fp32 for 256 of them",
    "gptq4": "GPTQ file: 4 bits a weight, fp16 scale and 4-bit zero a group, int32 g_idx an input",
    "gptq8": "GPTQ file: 8 bits a weight, fp16 scale and 8-bit zero a group, int32 g_idx an input",
    "awq": "AWQ file: 4 bits a weight, fp16 scale and 4-bit zero a group",
    "gguf": "GGUF header: the tensors' own sizes",
    "fp8": "fp8 file: 1 B a weight, one fp32 scale a tile of 128 x 128",
    "mxfp4": "OCP microscaling: experts in 4 bits a weight, one 8-bit scale for 32; the rest in 2 B",
}


class WeightBytes(NamedTuple):
    """Bytes of the base model on one card, and what loading it adds for a moment or for good."""

    linear: int
    embeddings: int  # embedding and output head
    other: int  # norms, biases, routers
    buffer: int  # what the quantised kernels keep for unpacking one matrix
    load_copy: int  # a second copy of the head that exists while the model is loaded

    @property
    def resident(self) -> int:
        return self.linear + self.embeddings + self.other + self.buffer


def linear_bytes(fmt: str, inputs: int, outputs: int, group_size: int = GROUP) -> float:
    """Bytes of one linear map's weights with their scales; sources in SOURCES."""
    size = inputs * outputs
    groups = outputs * (-(-inputs // group_size) if group_size else 1)
    match fmt:
        case "fp32":
            return 4 * size
        case "bf16" | "fp16":
            return 2 * size
        case "int8":
            return size + 4 * outputs
        case "nf4":
            return size / 2 + 4 * size / NF4_BLOCK
        case "nf4-dq":
            return size / 2 + size / NF4_BLOCK + 4 * size / (NF4_BLOCK * NF4_NESTED_BLOCK)
        case "gptq4":
            return size / 2 + groups * 2.5 + 4 * inputs
        case "gptq8":
            return size + groups * 3 + 4 * inputs
        case "awq":
            return size / 2 + groups * 2.5
        case "fp8":
            return size * (1 + 4 / FP8_TILE)
        case "mxfp4":
            return size / 2 + size / MX_BLOCK
    raise ValueError(f"no weight format {fmt!r}")


def weight_bytes(run: Run) -> WeightBytes:
    """The base model's weights on one card, before ZeRO-3 or FSDP shards them."""
    shape = run.shape
    linear = 0
    if not run.weight_bytes:
        for _, i, o, count in shape.linears():
            linear += count * block(linear_bytes(_format(run, count), i, o, run.group_size))
    plain = _plain_bytes(run)
    head_quantised = run.stack == "litgpt" and run.weights.startswith("nf4")
    embeddings = block(shape.embedding_params * plain)
    if head_quantised:
        embeddings += block(linear_bytes(run.weights, shape.hidden, shape.vocab))
    elif shape.head_params or _keeps_tied_head(run):
        embeddings += block((shape.head_params or shape.embedding_params) * plain)
    other = shape.other_params * (4 if run.kbit_fp32_norms else plain)
    if run.weight_bytes:  # the files' own sizes, plus what preparing the model adds to them
        linear, other = run.weight_bytes, 0
        embeddings = (embeddings // 2) if run.kbit_fp32_embeddings else 0
    return WeightBytes(
        linear=linear,
        embeddings=embeddings,
        other=other,
        buffer=_kernel_buffer(run),
        load_copy=_load_copy(run),
    )


def experts_stay_plain(run: Run) -> bool:
    """bitsandbytes quantises nn.Linear only, and experts are none since Transformers 5 (Bnb4BitHfQuantizer)."""
    return bool(run.shape.experts) and run.weights in ("nf4", "nf4-dq", "int8") and run.transformers >= (5, 0)


def _format(run: Run, count: int) -> str:
    """The format of a matrix that the model holds so many times: experts alone are more than the layers."""
    expert = count > run.shape.layers
    packed = not experts_stay_plain(run) if expert else run.weights != "mxfp4"
    return run.weights if packed else "bf16"


def _keeps_tied_head(run: Run) -> bool:
    """litgpt, and Transformers with fp8 files, keep a head beside the embedding even where it is tied."""
    return run.stack == "litgpt" or run.weights == "fp8"


def _plain_bytes(run: Run) -> int:
    """Bytes of a weight that is not quantised. PEFT's k-bit preparation turns these into fp32."""
    if run.weights == "fp32" or run.kbit_fp32_embeddings:
        return 4
    return 2


def _largest_linear(run: Run) -> int:
    return max(i * o for _, i, o, _ in run.shape.linears())


def _kernel_buffer(run: Run) -> int:
    """ExLlama's int4 kernels keep room to unpack the largest matrix into fp16 (exllamav2 temp_dq);
    litgpt quantises the head on the card, from a bf16 copy that is unpacked once more."""
    if run.weights == "gptq4" and not run.trains:
        return 2 * _largest_linear(run)
    if run.stack == "litgpt" and run.weights.startswith("nf4"):
        # 4 B a weight at inference; in training between that and the 2 B of one copy, from litgpt's tables
        return (3 if run.trains else 4) * run.shape.embedding_params
    return 0


def _load_copy(run: Run) -> int:
    """A tied head is loaded on its own before it is tied (Transformers up to 4.40)."""
    if run.shape.tied and not run.trains and run.transformers < (4, 41):
        return block(2 * run.shape.embedding_params)
    return 0
