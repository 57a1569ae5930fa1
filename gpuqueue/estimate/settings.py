"""What one setting of a training configuration means: its value, in whichever framework's words, as fields of a Run."""

import re
from collections.abc import Callable
from typing import Any

from gpuqueue.estimate.states import ALIASES, FUSED

Fields = dict[str, Any]
Reader = Callable[[Any], Fields]
LINEARS = {*ALIASES, *ALIASES.values(), *FUSED, "lm_head", "embed_tokens"}
DIGITS = 12
_WORD = re.compile(r"\w+")

OPTIMIZERS = {
    "adamw_torch": "adamw",
    "adamw_hf": "adamw",
    "adamw_torch_fused": "adamw_fused",
    "adamw_apex_fused": "adamw_fused",
    "adamw_bnb_8bit": "adamw_8bit",
    "adamw_8bit": "adamw_8bit",
    "adamw_torch_8bit": "adamw_8bit",
    "paged_adamw": "paged_adamw",
    "paged_adamw_32bit": "paged_adamw",
    "paged_adamw_8bit": "paged_adamw_8bit",
    "adamw_torch_npu_fused": "adamw_fused",
    "adamw": "adamw",
    "ademamix": "adamw",
    "adafactor": "adafactor",
    "sgd": "sgd",
    "lion": "lion",
    "lion_32bit": "lion",
    "paged_lion_32bit": "lion",
    "lion_8bit": "lion_8bit",
    "paged_lion_8bit": "lion_8bit",
    "muon": "muon",
}
ATTENTIONS = {
    "flash_attention_2": "flash",
    "flash_attention_3": "flash",
    "kernels-community/flash-attn": "flash",
    "fa2": "flash",
    "flex_attention": "flash",
    "xformers": "flash",
    "sdpa": "sdpa",
    "eager": "eager",
    "disabled": "eager",
    "auto": "sdpa",
}
DTYPES = {
    "bfloat16": "bf16",
    "bf16": "bf16",
    "float16": "fp16",
    "fp16": "fp16",
    "float32": "fp32",
    "fp32": "fp32",
}


def number(name: str) -> Callable[[Any], Fields]:
    """A setting that is a whole number of at least 1; anything else ("auto") is left to the assumptions."""

    def read(value: Any) -> Fields:
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < DIGITS:
            value = int(value)
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        return {name: int(value)} if whole and not isinstance(value, bool) and value >= 1 else {}

    return read


def share(name: str) -> Callable[[Any], Fields]:
    """A setting above 0 and at most 1."""

    def read(value: Any) -> Fields:
        return {name: float(value)} if isinstance(value, int | float) and 0 < value <= 1 else {}

    return read


def flag(name: str, **when_set: Any) -> Callable[[Any], Fields]:
    """A switch: true sets `name` (or all of `when_set`), false sets `name` to False."""

    def read(value: Any) -> Fields:
        if value in (True, "true", "True"):
            return when_set or {name: True}
        return {} if when_set else {name: False}

    return read


def checkpointing(value: Any) -> Fields:
    """Gradient checkpointing; by the names of Axolotl and Unsloth its stored inputs move to the host."""
    if value in ("unsloth", "offload", "offload_disk"):
        return {"checkpointing": True, "offload_activations": True}
    return flag("checkpointing")(value)


def optimizer(value: Any) -> Fields:
    """Trainer's names of optimizers."""
    known = OPTIMIZERS.get(str(value).rsplit(".", 1)[-1].lower())  # OptimizerNames.ADAMW_TORCH
    return {"optimizer": known} if known else {}


def attention(value: Any) -> Fields:
    """attn_implementation and its relatives."""
    known = ATTENTIONS.get(str(value).lower())
    return {"attention": known} if known else {}


def targets(value: Any) -> Fields:
    """target_modules as a list, a comma-separated text or "all-linear"."""
    if value in ("all", "all-linear"):
        return {"targets": ("all-linear",)}
    found = _words(value)
    if any(set(name) & set("()*[]|^$\\") for name in found):  # PEFT takes a text as a regular expression
        found = tuple(name for name in dict.fromkeys(_WORD.findall(str(value))) if name in LINEARS)
    return {"targets": found} if found else {}


def names(field_name: str) -> Callable[[Any], Fields]:
    """A list of module names."""

    def read(value: Any) -> Fields:
        found = _words(value)
        return {field_name: found} if found else {}

    return read


def _words(value: Any) -> tuple[str, ...]:
    """A list of names, or a text of them with commas; empty for anything else."""
    listed = value.split(",") if isinstance(value, str) else value
    if not isinstance(listed, list | tuple) or not all(isinstance(each, str) for each in listed):
        return ()
    return tuple(each.strip() for each in listed if each.strip())


def dropout(value: Any) -> Fields:
    """Dropout above zero costs a mask, its size does not matter."""
    return {"dropout": isinstance(value, int | float) and value > 0}


def dtype(value: Any) -> Fields:
    """The type that the weights are loaded in."""
    known = DTYPES.get(str(value).removeprefix("torch."))
    return {"weights": known} if known else {}


def mixed(name: str) -> Callable[[Any], Fields]:
    """bf16=True and fp16=True: autocast in that type."""

    def read(value: Any) -> Fields:
        return {"compute": name, "autocast": True} if value is True else {}

    return read


TRAINER: dict[str, Reader] = {
    "per_device_train_batch_size": number("batch"),
    "gradient_accumulation_steps": number("grad_accumulation"),
    "gradient_checkpointing": checkpointing,
    "optim": optimizer,
    "optimizer": optimizer,
    "bf16": mixed("bf16"),
    "fp16": mixed("fp16"),
    "use_liger_kernel": flag("", loss="linear", fused_norms=True, fused_mlp=True),
    "use_liger": flag("", loss="linear", fused_norms=True, fused_mlp=True),
    "torch_compile": flag("compiled"),
    "packing": flag("packed"),
    "padding_free": flag("packed"),
    "max_length": number("seq_len"),
    "max_seq_length": number("seq_len"),
    "max_prompt_length": number("prompt_len"),
    "max_completion_length": number("completion_len"),
    "precompute_ref_log_probs": flag("precomputed_reference"),
    "attn_implementation": attention,
    "lora_r": number("rank"),
    "lora_dropout": dropout,
    "lora_target_modules": targets,
    "lora_modules_to_save": names("modules_to_save"),
    "dtype": dtype,
    "torch_dtype": dtype,
    "activation_offloading": flag("offload_activations"),
    "per_device_eval_batch_size": number("eval_batch"),
    "steps_per_generation": number("steps_per_generation"),
    "model_max_length": number("seq_len"),
}
COLOCATED: dict[str, Reader] = {
    "vllm_gpu_memory_utilization": share("gpu_memory_utilization"),
    "vllm_enable_sleep_mode": flag("vllm_sleeps"),
}
