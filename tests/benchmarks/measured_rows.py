"""Reads a row of published VRAM measurements: which Run it was, what was measured, or what is missing."""

import re
from dataclasses import dataclass, field

from gpuqueue.estimate.catalogue import UnknownModelError, find
from gpuqueue.estimate.run import Run
from gpuqueue.estimate.settings import optimizer

Fields = dict[str, object]

GIB = 1024.0
DECIMAL = 1e9 / 2**30
CENSORED_GIB = 1.0
CARD_GIB = {
    "A100-80GB": 80,
    "A100-40GB": 40,
    "Tesla T4": 14.6,
    "A10G-24GB": 22.5,
    "H20-96GB": 96,
    "NVIDIA L40S": 45,
}
HOPPER = ("H20", "H100", "H200")

# Steps of torchtune's table of memory flags; each row has all flags up to its own.
TORCHTUNE_STEPS = (
    ("baseline", {}),
    ("packed", {"packed": True}),
    ("compile", {"compiled": True}),
    ("chunked cross-entropy", {"loss": "chunked"}),
    ("activation checkpointing", {"checkpointing": True}),
    ("optimizer in backward", {"optimizer_in_backward": True}),
    ("activation offloading", {"offload_activations": True}),
    ("8-bit adamw", {"optimizer": "adamw_8bit"}),
)
# Facts of a quantised repository's own quantize_config.json.
GROUP_SIZE = {"TheBloke/Mixtral-8x7B-Instruct-v0.1-GPTQ": 0, "TheBloke/Llama-2-70B-GPTQ": 0}


@dataclass
class Measured:
    """A row that can be estimated. `measured` maps torch_peak and occupied to MiB."""

    run: Run
    category: str  # checkpointed | kept | inference 16-bit | inference quantised
    measured: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)  # quantity -> why it is not scored


class IncompleteError(Exception):
    """The row does not say enough to be estimated; the text says what is missing."""


def read(row: dict[str, str]) -> Measured:
    """What the row measured. Raises IncompleteError."""
    row = row | {"method": row["method"].strip().lower()}
    if row.get("use") == "exclude":
        raise IncompleteError("the source's own note excludes it")
    if row["method"] not in ("full", "lora", "qlora", "inference") and not _llama_adapter(row):
        raise IncompleteError(f"method {row['method']}: neither LoRA, LLaMA-Adapter, full nor inference")
    if (row.get("n_gpu") or "1") != "1":
        raise IncompleteError("sum over several GPUs")
    _refuse_by_source(row)
    try:
        shape = find(row["model"])
    except UnknownModelError as error:
        raise IncompleteError("no shape for this model") from error
    try:
        run = _inference(row, shape) if row["method"] == "inference" else _training(row, shape)
        run.check()
    except ValueError as error:
        raise IncompleteError(f"cannot be read: {error}") from error
    if run.trains:
        category = "checkpointed" if run.checkpointing else "kept"
    else:
        category = "inference quantised" if run.quantised else "inference 16-bit"
    found = Measured(run, category)
    _measurements(row, found)
    if not found.measured and not found.left_out:
        raise IncompleteError(f"metric {row['metric']!r} is neither torch's peak nor what the card showed")
    return found


def _llama_adapter(row: dict[str, str]) -> str:
    """litgpt's Adapter v1 and v2, which its notes name; empty for everything else."""
    found = re.match(r"Adapter v([12])", row["notes"]) if row["source"].startswith("litgpt") else None
    return "" if found is None else "llama_adapter" if found.group(1) == "1" else "llama_adapter_v2"


def _refuse_by_source(row: dict[str, str]) -> None:
    source, notes = row["source"].lower(), row["notes"].lower()
    if "finetuning memory table" in source:
        raise IncompleteError("Qwen README fine-tuning: unit, tool and DeepSpeed use are not stated")
    if "method_comparison" in source and not notes.startswith(("lora/", "full-finetuning/")):
        raise IncompleteError("PEFT method comparison: not plain LoRA")
    if "method_comparison" in source and re.search(r"use_dora|use_bdlora|lora-fa|lorafa|mica|use_rslora=false", notes):
        raise IncompleteError("PEFT method comparison: a variant of LoRA")
    if "image-gen" in source or "image" in row["seq_len"]:
        raise IncompleteError("image generation")
    if "ms-swift" in source or "axolotl" in source or "unsloth" in source:
        raise IncompleteError("a rounded comment, or a capacity, not a measurement of one configuration")
    if "cache quant" in notes or "kv quant" in notes:
        raise IncompleteError("KV-cache quantisation table")
    if row["method"] != "inference" and _tokens(row["seq_len"]) is None:
        raise IncompleteError("sequence length not stated")
    if row["method"] != "inference" and not row["batch"]:
        raise IncompleteError("batch size not stated")
    if "torchtune" in source and "different memory flags" in notes:
        raise IncompleteError("torchtune README: the two cards ran with different memory flags, not stated row by row")
    if "not packed" in row["batch"]:
        raise IncompleteError("padded batches of unstated length")


def _tokens(text: str) -> int | None:
    if "alpaca" in text or "max_length" in text or "not capped" in text:
        return None
    found = re.search(r"(\d[\d,]*)", text)
    return int(found.group(1).replace(",", "")) if found else None


def _version(row: dict[str, str]) -> tuple[int, int]:
    found = re.search(r"transformers ?(\d+)\.(\d+)", row["notes"])
    if found:
        return int(found.group(1)), int(found.group(2))
    if "granite" in row["url_or_repo_path"]:
        return 4, 45  # requirements_granite.txt
    return 5, 0


def _weights(text: str) -> str:
    text = text.lower()
    for mark, fmt in (
        ("nf4-dq", "nf4-dq"),
        ("nf4", "nf4"),
        ("gptq-int8", "gptq8"),
        ("gptq", "gptq4"),
        ("awq", "awq"),
        ("fp8", "fp8"),
        ("int8", "int8"),
        ("fp16", "fp16"),
        ("float16", "fp16"),
        ("fp32", "fp32") if not text.startswith("bf16") else ("bf16", "bf16"),
    ):
        if mark in text and not (mark == "float16" and "bfloat16" in text):
            return fmt
    return "bf16"


def _targets(text: str) -> tuple[str, ...]:
    return tuple(part for part in re.split(r"[ ,+]+", text.split("(")[0]) if part) or ("all-linear",)


def _common(row: dict[str, str]) -> Fields:
    flash = row["flash_attention"].lower()
    attention = "eager" if "eager" in flash else "sdpa" if "sdpa" in flash else "flash"
    fields: Fields = {"attention": attention, "transformers": _version(row)}
    fields["workspace_mib"] = 32 if row["gpu"].startswith(HOPPER) else 9
    fields["expand_kv"] = "expand" in flash
    fields["weights"] = _weights(row["weight_dtype"])
    fields["group_size"] = GROUP_SIZE.get(row["model"], 128)
    context = re.search(r"CUDA context ([\d.]+) MiB", row["notes"])
    if context:
        fields["context_mib"] = round(float(context.group(1)))
    if "fp16" in row["weight_dtype"] or "compute float16" in row["weight_dtype"]:
        fields["compute"] = "fp16"
    return fields


def _inference(row: dict[str, str], shape: object) -> Run:
    fields = _common(row)
    lengths = re.search(r"(?:prompt|context) (\d+) \+ generate (\d+)", row["seq_len"])
    if lengths:
        fields |= {"prompt_len": int(lengths.group(1)), "new_tokens": int(lengths.group(2))}
    elif "short prompt" in row["notes"]:
        fields |= {"prompt_len": 8, "new_tokens": 50}
    else:
        raise IncompleteError("neither prompt nor generated length stated")
    if "excludes any prefill" in row["notes"]:
        fields["prefill"] = False
    if row["source"].startswith("litgpt"):
        fields["stack"] = "litgpt"
    if row["source"].startswith("Qwen README"):
        fields["transformers"] = (4, 31)
    return Run(shape=shape, method="inference", batch=int(row["batch"] or 1), **fields)  # type: ignore[arg-type]


def _training(row: dict[str, str], shape: object) -> Run:
    fields = _common(row)
    rank = int(float(row["rank"])) if row["rank"] else 0
    method = row["method"]
    if adapter := _llama_adapter(row):
        method = "qlora" if "nf4" in row["weight_dtype"] else "lora"
        fields["adapter"] = adapter
    elif method != "full":
        if not rank:
            raise IncompleteError("LoRA rank not stated")
        fields |= {"rank": rank, "targets": _targets(row["target_modules"])}
    batch = int(re.match(r"\d+", row["batch"]).group())  # type: ignore[union-attr]
    fields |= {"batch": batch, "seq_len": _tokens(row["seq_len"])}
    fields["checkpointing"] = row["grad_checkpointing"].lower().startswith(("true", "yes"))
    fields |= _optimizer(row["optimizer"])
    for source, reader in SOURCES.items():
        if row["source"].lower().startswith(source):
            fields |= reader(row)
    return Run(shape=shape, method=method, **fields)  # type: ignore[arg-type]


def _optimizer(text: str) -> Fields:
    """What the row says of it in so many words; plain AdamW, or nothing, leaves the source's own default."""
    name = re.split(r"[ (+;]", text.strip().lower())[0].replace("adamw8bit", "adamw_8bit").removeprefix("torch.optim.")
    if name in ("", "adamw", "adamw_torch", "not", "per"):
        return {}
    fields: Fields = optimizer(name.replace("pagedadamw", "paged_adamw"))
    if not fields:
        raise IncompleteError(f"optimizer {text!r} is not known")
    return fields | ({"optimizer_in_backward": True} if re.search(r"in[_ ](bwd|backward)", text) else {})


def _fms(row: dict[str, str]) -> Fields:
    framework = re.search(r"framework_config=([\w-]+)", row["notes"])
    name = framework.group(1) if framework else ""
    flags = re.search(r"(fp16|bf16)=true", row["notes"].lower())
    fields: Fields = {
        "autocast": flags is not None,
        "kbit": "trl" if name.startswith("baseline") else "none",
    }
    if "nf4" in row["weight_dtype"]:
        fields["weights"] = "nf4-dq"  # the benchmark's BitsAndBytesConfig, and 1.99 GiB after the run agree
    if "liger" in name:
        fields |= {"loss": "linear", "fused_norms": True}
    elif "foak" in name:
        fields |= {"loss": "fused", "fused_norms": True}
    return fields


def _fitcheck(row: dict[str, str]) -> Fields:
    fields: Fields = {"autocast": False, "holds_logits": True, "transformers": (5, 0)}
    if "single synthetic step" in row["notes"]:
        fields["steps"] = 1
    return fields


def _litgpt(row: dict[str, str]) -> Fields:
    fields: Fields = {"stack": "litgpt", "autocast": False, "adapter_bytes": 2, "dropout": True, "kbit": "none"}
    if "longest sample" in row["seq_len"]:
        fields["step_before"] = 0.25  # one sample of that length, where the usual one has some 270 tokens
    return fields


def _torchtune(row: dict[str, str]) -> Fields:
    fields: Fields = {"stack": "torchtune", "autocast": False, "adapter_bytes": 2, "kbit": "none"}
    fields["optimizer"] = "adamw_fused"
    step = re.search(r'cumulative row "\+? ?([^"]+)"', row["notes"])
    if step:
        for name, flags in TORCHTUNE_STEPS:
            fields |= flags
            if name.lower() == step.group(1).lower().replace("packed 4096", "packed"):
                break
    if row["method"] != "full":  # the last two rows of the table go back to plain AdamW
        fields |= {"optimizer": "adamw_fused", "optimizer_in_backward": False}
    return fields


def _peft(row: dict[str, str]) -> Fields:
    return {"context_mib": 0}


SOURCES = {"fms": _fms, "fitcheck": _fitcheck, "litgpt": _litgpt, "torchtune": _torchtune, "peft": _peft}


def _mib(gib: str) -> float | None:
    try:
        return float(gib) * GIB
    except ValueError:  # empty, "n/a"
        return None


def _measurements(row: dict[str, str], found: Measured) -> None:
    metric = row["metric"].lower()
    value, peak = _mib(row["measured_gib"]), _mib(row.get("torch_peak_alloc_gib") or "")
    if peak:
        found.measured["torch_peak"] = peak
    elif value and ("max_memory_allocated" in metric or "peak active" in metric or "tool not stated" in metric):
        scale = DECIMAL if row["source"].startswith("Qwen README") else 1.0
        found.measured["torch_peak"] = value * scale
    if value and ("nvidia-smi" in metric or "process" in metric or "reserved" in metric):
        card = CARD_GIB.get(row["gpu"], 0)
        if card and "reserved" not in metric.split("=")[0] and value > (card - CENSORED_GIB) * GIB:
            found.left_out["occupied"] = "within 1 GiB of the card's size: the true value may be higher"
        else:
            found.measured["occupied"] = value
