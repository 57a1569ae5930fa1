"""What a training configuration says about memory: settings found, and what had to be assumed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Fields = dict[str, Any]
Reader = Callable[[Any], Fields]

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


class UnreadableConfigError(ValueError):
    """The file cannot be read as a training configuration; the text names the file and the way out."""


@dataclass
class Reading:
    """The model's name, Run fields, and the sentences for the person: what was read, what was assumed."""

    kind: str
    model: str | None = None
    fields: Fields = field(default_factory=dict)
    read: list[str] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)  # names of settings of which nothing here knows a use

    def take(self, where: str, value: Any, fields: Fields) -> None:
        """Notes that `where` said `value`, and what that means for the Run."""
        self.fields.update(fields)
        meaning = ", ".join(f"{name} {_show(each)}" for name, each in fields.items())
        self.read.append(f"{where} = {_show(value)}" + (f" -> {meaning}" if meaning else ""))

    def assume(self, sentence: str, **fields: Any) -> None:
        """Sets fields that nothing has set yet, and says so; says nothing where all are set."""
        missing = {name: value for name, value in fields.items() if name not in self.fields}
        if missing or not fields:
            self.fields.update(missing)
            self.assumed.append(sentence)


def _show(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(str(each) for each in value) or "none"
    return str(value)


def number(name: str) -> Callable[[Any], Fields]:
    """A setting that is a whole number of at least 1; anything else ("auto") is left to the assumptions."""

    def read(value: Any) -> Fields:
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 1:
            return {}
        return {name: int(value)}

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
    known = OPTIMIZERS.get(str(value).rsplit(".", 1)[-1].lower())
    return {"optimizer": known} if known else {}


def attention(value: Any) -> Fields:
    """attn_implementation and its relatives."""
    known = ATTENTIONS.get(str(value).lower())
    return {"attention": known} if known else {}


def targets(value: Any) -> Fields:
    """target_modules as a list, a comma-separated text or "all-linear"."""
    if value in ("all", "all-linear"):
        return {"targets": ("all-linear",)}
    names = value.split(",") if isinstance(value, str) else value
    return {"targets": tuple(str(name).strip() for name in names)} if names else {}


def names(field_name: str) -> Callable[[Any], Fields]:
    """A list of module names."""

    def read(value: Any) -> Fields:
        listed = value.split(",") if isinstance(value, str) else value or ()
        return {field_name: tuple(str(each).strip() for each in listed)}

    return read


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
    "model_max_length": number("seq_len"),
}


def take_all(reading: Reading, document: dict[str, Any], readers: dict[str, Reader], where: str = "") -> None:
    """Takes every setting that `readers` knows; one that says nothing of use is listed as unread."""
    for key, value in document.items():
        reader = readers.get(key)
        if reader is None or value is None:
            continue
        fields = reader(value)
        if fields:
            reading.take(where + key, value, fields)
        elif value is not False:
            reading.unread.append(f"{where}{key} = {value}")


def assume_trainer(reading: Reading) -> None:
    """Defaults of TrainingArguments that every framework on top of Trainer leaves alone."""
    reading.assume("batch of 8 a device, Trainer's default", batch=8)
    reading.assume("optimizer adamw_torch_fused, Trainer's default", optimizer="adamw_fused")


def assume_trl(reading: Reading) -> None:
    """Defaults of TRL's configurations, where they differ from Trainer's."""
    assume_trainer(reading)
    reading.assume("gradient checkpointing, TRL's default", checkpointing=True)
    reading.assume("bf16 autocast, TRL's default", compute="bf16", autocast=True)
    if reading.fields.get("trainer") == "grpo":
        if "prompt_len" in reading.fields:
            reading.fields["seq_len"] = reading.fields.pop("prompt_len")
        reading.assume("prompts of 512 tokens, TRL's default", seq_len=512)
        reading.assume("completions of 256 tokens, TRL's default", completion_len=256)
    reading.assume("sequences of 1024 tokens, TRL's default", seq_len=1024)
    if reading.fields.get("method") == "full" and reading.fields.get("trainer", "sft") == "sft":
        reading.assume("loss in chunks, TRL's default without PEFT", loss="chunked")


def zero(reading: Reading, settings: dict[str, Any]) -> None:
    """ZeRO's stage and offloading, in accelerate's and in DeepSpeed's words."""
    stage = settings.get("zero_stage", settings.get("stage"))
    if isinstance(stage, int):
        reading.take("zero_stage", stage, {"zero": stage})
    for key, name in (
        ("offload_optimizer_device", "offload_optimizer"),
        ("offload_param_device", "offload_weights"),
    ):
        device = settings.get(key)
        if device not in (None, "none"):
            reading.take(key, device, {name: True})


def deepspeed(reading: Reading, value: Any) -> None:
    """A DeepSpeed file is known by its name only: zero1, zero2, zero3 stand in it by custom."""
    if isinstance(value, dict):
        settings = value.get("zero_optimization")
        zero(reading, settings if isinstance(settings, dict) else value)
    elif isinstance(value, str):
        stages = [stage for stage in (1, 2, 3) if f"zero{stage}" in value or f"z{stage}" in value.replace("_", "")]
        if stages:
            reading.take("deepspeed", value, {"zero": stages[-1]})
            reading.assumed.append(f"ZeRO stage {stages[-1]} from the file name {value.rsplit('/', 1)[-1]}")
        else:
            reading.unread.append(f"deepspeed = {value}")


def trainer_kind(name: str) -> Fields:
    """The trainer that `rl` in Axolotl and `stage` in LLaMA-Factory mean."""
    known = {
        "dpo": "dpo",
        "ipo": "dpo",
        "simpo": "orpo",
        "orpo": "orpo",
        "kto": "kto",
        "grpo": "grpo",
        "rm": "reward",
    }
    return {"trainer": known[name]} if name in known else {}


def method(reading: Reading, adapter: Any, four_bit: bool, eight_bit: bool) -> None:
    """full, lora or qlora, from what is adapted and how it is loaded."""
    if four_bit:
        reading.take("4 bit", True, {"weights": "nf4"})
    elif eight_bit:
        reading.take("8 bit", True, {"weights": "int8"})
    if not adapter:
        chosen = "full"
    else:
        chosen = "qlora" if four_bit or eight_bit else "lora"
    reading.take("adapter", adapter or "none", {"method": chosen})
    if adapter == "qlora" and not (four_bit or eight_bit):
        reading.assume("the model is quantised already: adapter is qlora, yet nothing asks to quantise it")


def finish(reading: Reading) -> Reading:
    """Assumptions that hold for every kind of file."""
    if reading.fields.get("method") != "full":
        reading.assume("LoRA rank 8, PEFT's default", rank=8)
    reading.assume("weights in bf16: nothing says otherwise", weights="bf16")
    return reading
