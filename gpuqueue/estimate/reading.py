"""What a training configuration says about memory: settings found, and what had to be assumed."""

from dataclasses import dataclass, field
from typing import Any

from gpuqueue.estimate.settings import COLOCATED, Fields, Reader


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


COUNTED_VALUES = (False, "no", "none", "bnb", "bitsandbytes")
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
        reading.assumed.append("no dtype is set: some releases of TRL then load fp32")
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
    return reading
