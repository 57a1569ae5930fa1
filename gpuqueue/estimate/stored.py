"""In which format a model's weights are stored, by its config.json or by its name."""

from typing import Any

from gpuqueue.estimate.model_files import Stored, UnreadableModelError

Fields = dict[str, Any]

LARGEST_GROUP = 2**31 - 1
DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "F32": "fp32", "BF16": "bf16", "F16": "fp16"}
BY_BITS = {
    "gptq": {4: "gptq4", 8: "gptq8"},
    "awq": {4: "awq"},
    "fp8": {0: "fp8", 8: "fp8"},
    "fbgemm_fp8": {0: "fp8"},
    "mxfp4": {0: "mxfp4", 4: "mxfp4"},
    "bitsandbytes": {4: "nf4", 8: "int8"},
}
COMPRESSED = {("float", 8): "fp8", ("int", 8): "int8", ("int", 4): "awq"}  # (type, bits) of compressed-tensors

# Words of a name, in the order in which they are looked for: those that go together first.
NAMED = (
    (("bnb", "4bit"), "nf4-dq"),
    (("bnb", "8bit"), "int8"),
    (("gptq", "int8"), "gptq8"),
    (("gptq", "8bit"), "gptq8"),
    (("gptq",), "gptq4"),
    (("awq",), "awq"),
    (("mxfp4",), "mxfp4"),
    (("fp8",), "fp8"),
    (("bf16",), "bf16"),
    (("fp16",), "fp16"),
)
UNSETTLED = (
    "gguf ggml q4 q8 1.58bit 2bit 3bit 4bit 5bit 6bit 8bit int2 int3 int4 int8 fp4 nf4 nvfp4 w4a16 w4a8 w8a8 w8a16 "
    "exl2 exl3 mlx hqq aqlm quip quant quantized autoround gptqmodel marlin eetq"
)
SHIPPED = {"gpt-oss-20b": "mxfp4", "DeepSeek-V3": "fp8"}  # built-in models that are published quantised


class UnknownFormatError(ValueError):
    """A model's name says that it is quantised, in a format that is not counted here."""

    def __init__(self, name: str, word: str) -> None:
        super().__init__(
            f"model {name!r}: {word!r} in its name says that its weights are quantised, in a format that a name does "
            "not settle: give its directory, its .gguf file, or --weights"
        )


def by_config(config: dict[str, Any], stored: Stored | None, where: str) -> tuple[Fields, list[str]]:
    """Run fields of the format, as far as anything tells it, and what has to be said of that. `where` names the file
    in an error."""
    quantisation = config.get("quantization_config")
    if isinstance(quantisation, dict):
        return _quantised(quantisation, where), []
    said = config.get("dtype") or config.get("torch_dtype")
    named = str(said or (stored.dtype if stored else "")).removeprefix("torch.")
    if named in DTYPES:
        return {"weights": DTYPES[named]}, []
    return {}, [f"dtype {named} is none that is counted here"] if named else []


def _quantised(quantisation: Fields, where: str) -> Fields:
    method = str(quantisation.get("quant_method", ""))
    bits = quantisation.get("bits", 0)
    if method == "bitsandbytes":
        bits = 4 if quantisation.get("load_in_4bit") else 8
    stored = BY_BITS.get(method, {}).get(bits) if isinstance(bits, int) else None
    if method == "compressed-tensors":
        stored, bits = _compressed(quantisation)
    elif method == "modelopt" and quantisation.get("quant_algo") == "FP8":
        stored = "fp8"
    if stored is None:
        raise UnreadableModelError(
            f"{where}: quantization_config: {method or 'a method without a name'} at {bits} bits is not counted here: "
            "`gq probe` measures it"
        )
    if stored == "nf4" and quantisation.get("bnb_4bit_use_double_quant"):
        stored = "nf4-dq"
    group = quantisation.get("group_size")
    if not isinstance(group, int):
        return {"weights": stored, "group_size": 128}
    return {"weights": stored, "group_size": min(LARGEST_GROUP, max(0, group))}


def _compressed(quantisation: Fields) -> tuple[str | None, Any]:
    """(format, bits) of the first group of compressed-tensors; groups differ in what they leave out."""
    groups = quantisation.get("config_groups")
    for group in groups.values() if isinstance(groups, dict) else ():
        match group:
            case {"weights": {"type": str(kind), "num_bits": int(bits)}}:
                return COMPRESSED.get((kind, bits)), bits
    return None, "unstated"


def by_name(name: str, built_in: str) -> tuple[Fields, tuple[str, ...]]:
    """Run fields of the format that a model's name tells, or the built-in model is published in, and the sentence for
    it. Raises UnknownFormatError."""
    words = name.rsplit("/", 1)[-1].lower().replace("_", "-").split("-")
    for wanted, stored in NAMED:
        if all(word in words for word in wanted):
            return {"weights": stored}, (f"stored in {stored}: {'-'.join(wanted)} in the model's name says so",)
    for word in words:
        if word in UNSETTLED.split():
            raise UnknownFormatError(name, word)
    if built_in in SHIPPED:
        return {"weights": SHIPPED[built_in]}, (f"stored in {SHIPPED[built_in]}, as {built_in} is published",)
    return {}, ()
