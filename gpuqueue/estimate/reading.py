"""What a training configuration says about memory: settings found, and what had to be assumed."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
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


def words(text: str) -> frozenset[str]:
    """The names in a text."""
    return frozenset(text.split())


# Settings that change how much memory a run takes, and whose effect is not counted here.
UNCOUNTED = words(
    "use_dora peft_use_dora lora_target_parameters target_parameters layers_to_transform peft_layers_to_transform "
    "lora_layers_to_transform unfrozen_parameters freeze_trainable_layers freeze_trainable_modules relora use_galore "
    "use_apollo use_badam optim_target_modules optim_args lisa_n_layers use_unsloth use_unsloth_gc mixture_of_depths "
    "sequence_parallel_degree context_parallel_size tensor_parallel_size expert_parallel_size "
    "vllm_tensor_parallel_size quantization_method gptq fp8 qat auto_find_batch_size ref_model "
    "ref_model_name_or_path reward_model reward_model_path teacher_model_name_or_path "
    "cast_lm_head_to_fp32 trainable_token_indices "
    "peft_trainable_token_indices embedding_lr max_memory activation_memory_budget generate_during_eval "
    "predict_with_generate"
)


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


COUNTED_VALUES = (False, "no", "none", "bnb", "bitsandbytes")
COLOCATED: dict[str, Reader] = {
    "vllm_gpu_memory_utilization": share("gpu_memory_utilization"),
    "vllm_enable_sleep_mode": flag("vllm_sleeps"),
}
ROLLOUT = frozenset(("beta", "use_vllm", "vllm_mode", "num_generations", *COLOCATED))  # read by rollout()
EVALUATION = frozenset(("eval_strategy", "evaluation_strategy"))  # read by evaluation()
SHARDING = {"NO_SHARD": 0, "SHARD_GRAD_OP": 2}  # the rest shard all, as ZeRO 3 does


def take_all(
    reading: Reading,
    document: dict[str, Any],
    readers: dict[str, Reader],
    where: str = "",
    elsewhere: frozenset[str] = frozenset(),
) -> None:
    """Takes every setting that `readers` knows; one that says nothing of use is listed as unread, and those that have
    no reader by name, unless they are read `elsewhere`."""
    for key, value in document.items():
        reader = readers.get(key)
        if value is None or key in elsewhere:
            continue
        if reader is None:
            if key in UNCOUNTED and value not in COUNTED_VALUES:
                reading.unread.append(f"{where}{key} = {_show(value)}: it changes memory, and is not counted here")
            else:
                reading.passed.append(f"{where}{key}")
            continue
        fields = reader(value)
        if fields or value == "auto":  # which leaves it to the framework: one of the assumptions
            reading.take(where + key, value, fields)
        elif value is not False:
            reading.unread.append(f"{where}{key} = {_show(value)}")


def assume_optimizer(reading: Reading, whose: str) -> None:
    """adamw_torch_fused: the default of a framework, and what stands for an optimizer that is not known here."""
    unknown = [said for said in reading.unread if said.partition(" = ")[0].endswith(("optim", "optimizer"))]
    why = "in place of one that is not known here" if unknown else f"{whose} default"
    reading.assume(f"optimizer adamw_torch_fused, {why}", optimizer="adamw_fused")


def assume_trainer(reading: Reading) -> None:
    """Defaults of TrainingArguments that every framework on top of Trainer leaves alone."""
    reading.assume("batch of 8 a device, Trainer's default", batch=8)
    assume_optimizer(reading, "Trainer's")


def evaluation(reading: Reading, settings: dict[str, Any]) -> None:
    """Trainer evaluates only where eval_strategy says when, then with a batch size of its own."""
    strategy = settings.get("eval_strategy", settings.get("evaluation_strategy"))
    if strategy not in (None, False, "no"):
        reading.take("eval_strategy", strategy, {})
        reading.assume("evaluation of 8 rows a device, Trainer's default", eval_batch=8)
    elif reading.fields.pop("eval_batch", None) is not None:
        reading.assumed.append("no evaluation: eval_strategy is not set, and Trainer's default is none")


def rollout(reading: Reading, settings: dict[str, Any]) -> None:
    """How GRPO writes its completions: TRL's own settings, in whichever file they stand."""
    beta = settings.get("beta")
    if isinstance(beta, int | float) and beta > 0:
        reading.take("beta", beta, {"reference_model": True})
    else:
        reading.assume("no reference model: beta is 0, TRL's default", reference_model=False)
    for key in ("num_generations", "use_vllm", "vllm_mode"):
        if settings.get(key) is not None:
            reading.take(key, settings[key], {})
    if settings.get("use_vllm") is not True:
        return
    mode = settings.get("vllm_mode")
    if mode == "server":
        reading.assumed.append("vLLM's server is on another card, and not counted")
        return
    if mode is None:
        reading.assumed.append(
            "vLLM on the trainer's card: vllm_mode colocate, TRL's default since 1.0 (before: server)"
        )
    take_all(reading, {key: settings[key] for key in COLOCATED if key in settings}, COLOCATED)
    reading.assume("vLLM fills 30% of the card, TRL's default", gpu_memory_utilization=0.3)


def assume_trl(reading: Reading) -> None:
    """Defaults of TRL's configurations, where they differ from Trainer's."""
    assume_trainer(reading)
    reading.assume("gradient checkpointing, TRL's default", checkpointing=True)
    reading.assume("bf16 autocast, TRL's default", compute="bf16", autocast=True)
    if "weights" not in reading.fields:
        reading.assume("weights in bf16: no dtype is set (some releases of TRL then load fp32)", weights="bf16")
    if reading.fields.get("trainer") == "grpo":
        if "prompt_len" in reading.fields:
            reading.fields["seq_len"] = reading.fields.pop("prompt_len")
        reading.assume("prompts of 512 tokens: the data decide, since TRL cuts none", seq_len=512)
        reading.assume("completions of 256 tokens, TRL's default", completion_len=256)
    reading.assume("sequences of 1024 tokens, TRL's default", seq_len=1024)
    if reading.fields.get("method") == "full" and reading.fields.get("trainer", "sft") == "sft":
        reading.assume("loss in chunks, TRL's default without PEFT", loss="chunked")


def zero(reading: Reading, settings: dict[str, Any]) -> None:
    """ZeRO's stage and offloading, in accelerate's and in DeepSpeed's words."""
    stage = settings.get("zero_stage", settings.get("stage"))
    if isinstance(stage, int):
        reading.take("zero_stage", stage, {"zero": stage})
    for key, name in (("offload_optimizer", "offload_optimizer"), ("offload_param", "offload_weights")):
        nested = settings.get(key)  # DeepSpeed's words; accelerate's are flat
        device = nested.get("device") if isinstance(nested, dict) else settings.get(f"{key}_device")
        if device not in (None, "none"):
            reading.take(key, device, {name: True})


def fsdp(reading: Reading, value: Any, settings: Any) -> None:
    """Trainer's `fsdp` ("full_shard offload") and `fsdp_config`, in Axolotl's and accelerate's files too."""
    found = {key.removeprefix("fsdp_"): each for key, each in settings.items()} if isinstance(settings, dict) else {}
    if not found and not value:
        return
    words = " ".join(value) if isinstance(value, list) and all(isinstance(each, str) for each in value) else str(value)
    strategy = str(found.get("sharding_strategy") or (words if value else "full_shard")).upper()
    stage = next((stage for name, stage in SHARDING.items() if name in strategy), 3)
    fields: Fields = {"zero": stage}
    if found.get("offload_params") or "OFFLOAD" in strategy:
        fields |= {"offload_weights": True, "offload_optimizer": True}
    reading.take("fsdp", strategy.lower(), fields)
    if found.get("activation_checkpointing"):
        reading.take("fsdp activation_checkpointing", True, {"checkpointing": True})


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
            reading.unread.append(f"deepspeed = {value}: the name tells no stage of ZeRO; say --zero and --ranks")
    elif value:
        reading.unread.append(f"deepspeed = {_show(value)}")


def take_kind(reading: Reading, where: str, name: str) -> None:
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
    if name in known:
        reading.take(where, name, {"trainer": known[name]})
    else:
        reading.unread.append(f"{where} = {name}: counted as sft")


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
        reading.assume("the model is quantised already, else LoRA: adapter is qlora, yet nothing asks to quantise it")


def finish(reading: Reading) -> Reading:
    """Assumptions that hold for every kind of file."""
    if reading.fields.get("method") != "full":
        reading.assume("LoRA rank 8, PEFT's default", rank=8)
    reading.assume("weights in bf16: nothing says otherwise", weights="bf16")
    return reading
