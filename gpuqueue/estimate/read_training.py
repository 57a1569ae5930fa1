"""Reads Axolotl, LLaMA-Factory, TRL and accelerate configuration files. Nothing in them is run."""

import json
from pathlib import Path
from typing import Any

from gpuqueue.estimate.read_yaml import YamlError, parse
from gpuqueue.estimate.reading import (
    EVALUATION,
    ROLLOUT,
    Reading,
    UnreadableConfigError,
    assume_optimizer,
    assume_trainer,
    assume_trl,
    deepspeed,
    evaluation,
    finish,
    fsdp,
    method,
    rollout,
    take_all,
    take_kind,
    words,
    zero,
)
from gpuqueue.estimate.settings import TRAINER, Reader, flag, mixed, names, number, targets

MAX_FILE_BYTES = 1 << 20


def read_training(path: Path) -> Reading:
    """What the file says. A .py file is parsed, .yaml, .yml and .json are read; anything else is refused."""
    if path.suffix not in (".py", ".yaml", ".yml", ".json"):
        raise UnreadableConfigError(f"{path}: --from reads .py, .yaml, .yml and .json")
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES or not path.is_file():
            raise UnreadableConfigError(f"{path}: --from reads a file of at most {MAX_FILE_BYTES >> 20} MiB")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableConfigError(f"{path} cannot be read: {error}") from error
    try:
        return _read(text, path)
    except YamlError as error:
        raise UnreadableConfigError(f"{path}, {error}") from error
    except (RecursionError, MemoryError) as error:  # Python's parser raises the latter of too deep a nesting
        raise UnreadableConfigError(f"{path}: nested too deeply to be a configuration") from error


def _read(text: str, path: Path) -> Reading:
    if path.suffix == ".py":
        from gpuqueue.estimate.read_python import read_python

        return read_python(text, path)
    document = _json(text, path) if path.suffix == ".json" else parse(text)
    if not isinstance(document, dict):
        raise UnreadableConfigError(f"{path} holds no settings")
    return read_document(document, path)


def _json(text: str, path: Path) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once_each)
    except ValueError as error:
        raise UnreadableConfigError(f"{path}: {error}") from error


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for at, (name, _) in enumerate(pairs) if name in dict(pairs[:at]))
        raise ValueError(f"{twice} stands here a second time")
    return found


def read_document(document: dict[str, Any], path: Path) -> Reading:
    """What these settings say, in whichever framework's words they are. `path` is named where they are in none's."""
    if "base_model" in document:
        return _axolotl(document)
    if "finetuning_type" in document or ("stage" in document and "model_name_or_path" in document):
        return _llama_factory(document)
    if "distributed_type" in document or "compute_environment" in document:
        return _accelerate(document)
    if "model_name_or_path" in document or "per_device_train_batch_size" in document:
        return _trainer(document)
    raise UnreadableConfigError(
        f"{path.name} is no Axolotl (base_model), LLaMA-Factory (finetuning_type), accelerate "
        "(distributed_type) or Trainer (model_name_or_path) configuration"
    )


# Axolotl ------------------------------------------------------------------------------------------

AXOLOTL: dict[str, Reader] = TRAINER | {
    "micro_batch_size": number("batch"),
    "sequence_len": number("seq_len"),
    "sample_packing": flag("packed"),
    "flash_attention": flag("", attention="flash"),
    "flex_attention": flag("", attention="flash"),
    "xformers_attention": flag("", attention="flash"),
    "sdp_attention": flag("", attention="sdpa"),
    "eager_attention": flag("", attention="eager"),
    "lora_target_linear": flag("", targets=("all-linear",)),
    "eval_batch_size": number("eval_batch"),
    "liger_fused_linear_cross_entropy": flag("", loss="linear"),
    "liger_rms_norm": flag("", fused_norms=True),
    "liger_glu_activation": flag("", fused_mlp=True),
    "cut_cross_entropy": flag("", loss="linear"),
    "chunked_cross_entropy": flag("", loss="chunked"),
    "bf16": lambda value: {"compute": "bf16", "autocast": True} if value in (True, "true", "auto", "full") else {},
}
AXOLOTL_ELSEWHERE = words(
    "base_model adapter load_in_4bit load_in_8bit plugins rl trl deepspeed fsdp fsdp_config val_set_size test_datasets "
    "bnb_config_kwargs max_prompt_len"
)


def _axolotl(document: dict[str, Any]) -> Reading:
    reading = Reading("axolotl", _model(document["base_model"]))
    reading.read.append(f"base_model = {reading.model}")
    take_all(reading, document, AXOLOTL, elsewhere=AXOLOTL_ELSEWHERE)
    four = bool(document.get("load_in_4bit"))
    method(reading, document.get("adapter"), four, bool(document.get("load_in_8bit")))
    if four and _mapping(document.get("bnb_config_kwargs")).get("bnb_4bit_use_double_quant", True):
        reading.fields["weights"] = "nf4-dq"
        reading.assumed.append("double quantisation, Axolotl's default")
    if reading.fields["method"] == "qlora":
        reading.assume("prepare_model_for_kbit_training, which Axolotl calls", kbit="peft")
    if "CutCrossEntropy" in str(document.get("plugins")):
        reading.take("plugins", "CutCrossEntropy", {"loss": "linear"})
    if document.get("rl"):
        take_kind(reading, "rl", str(document["rl"]))
    if reading.fields.get("trainer") == "grpo":
        _axolotl_rollout(reading, document)
    deepspeed(reading, document.get("deepspeed"))
    fsdp(reading, document.get("fsdp"), document.get("fsdp_config"))
    reading.assume("rows of 512 tokens, Axolotl's default", seq_len=512)
    reading.assume("bf16 autocast, Axolotl's default", compute="bf16", autocast=True)
    reading.assume("no gradient checkpointing: the file does not turn it on", checkpointing=False)
    reading.assume("micro batch of 1, Axolotl's default", batch=1)
    assume_optimizer(reading, "Axolotl's")
    if reading.fields["method"] != "full":
        reading.assume("LoRA on all linear layers: the file names no targets", targets=("all-linear",))
    if document.get("val_set_size") or document.get("test_datasets"):
        reading.assume("evaluation by the micro batch, Axolotl's default", eval_batch=reading.fields["batch"])
    elif reading.fields.pop("eval_batch", None) is not None:
        reading.assumed.append("no evaluation: the file sets no data aside for it")
    return finish(reading)


def _axolotl_rollout(reading: Reading, document: dict[str, Any]) -> None:
    settings = _mapping(document.get("trl"))
    take_all(reading, settings, TRAINER, "trl.", ROLLOUT)
    rollout(reading, settings)
    reading.fields |= number("seq_len")(document.get("max_prompt_len"))
    reading.assume("completions of 256 tokens, TRL's default", completion_len=256)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _model(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


# LLaMA-Factory ------------------------------------------------------------------------------------

LLAMA_FACTORY: dict[str, Reader] = TRAINER | {
    "cutoff_len": number("seq_len"),
    "lora_rank": number("rank"),
    "lora_target": targets,
    "additional_target": names("modules_to_save"),
    "flash_attn": TRAINER["attn_implementation"],
    "neat_packing": flag("packed"),
    "enable_liger_kernel": TRAINER["use_liger_kernel"],
    "pure_bf16": lambda value: {"autocast": False, "weights": "bf16"} if value is True else {},
}


LLAMA_FACTORY_ELSEWHERE = EVALUATION | words(
    "model_name_or_path quantization_bit finetuning_type double_quantization stage deepspeed fsdp fsdp_config "
    "disable_gradient_checkpointing"
)


def _llama_factory(document: dict[str, Any]) -> Reading:
    reading = Reading("llama-factory", _model(document.get("model_name_or_path")))
    reading.read.append(f"model_name_or_path = {reading.model}")
    take_all(reading, document, LLAMA_FACTORY, elsewhere=LLAMA_FACTORY_ELSEWHERE)
    bits = document.get("quantization_bit")
    kind = str(document.get("finetuning_type", "lora"))
    if kind not in ("lora", "full"):
        reading.unread.append(f"finetuning_type = {kind}: counted as {'lora' if kind == 'oft' else 'full'}")
    method(reading, "lora" if kind in ("lora", "oft") else None, bits == 4, bits == 8)
    if bits == 4 and document.get("double_quantization", True):
        reading.fields["weights"] = "nf4-dq"
        reading.assumed.append("double quantisation, LLaMA-Factory's default")
    if bits not in (None, 4, 8):
        reading.unread.append(f"quantization_bit = {bits}: counted as none")
    if bits in (4, 8):
        reading.assume("nothing is made fp32: LLaMA-Factory does without PEFT's k-bit preparation", kbit="none")
    if document.get("stage") not in (None, "sft", "pt"):
        take_kind(reading, "stage", str(document["stage"]))
        if document["stage"] == "rm":
            reading.fields["value_head"] = True
    deepspeed(reading, document.get("deepspeed"))
    fsdp(reading, document.get("fsdp"), document.get("fsdp_config"))
    if reading.fields["method"] == "full" and not reading.fields.get("zero"):
        reading.assume(
            "weights in fp32: LLaMA-Factory turns what it trains into that, unless pure_bf16", weights="fp32"
        )
    reading.assume("no mixed precision, Trainer's default", autocast=False)
    evaluation(reading, document)
    if not document.get("disable_gradient_checkpointing"):
        reading.assume("gradient checkpointing, which LLaMA-Factory turns on unasked", checkpointing=True)
    reading.assume("cut-off length 2048, LLaMA-Factory's default", seq_len=2048)
    assume_trainer(reading)
    if reading.fields["method"] != "full":
        reading.assume("LoRA on all linear layers, LLaMA-Factory's default", targets=("all-linear",))
        reading.assume("LoRA rank 8, LLaMA-Factory's default", rank=8)
    return finish(reading)


# Trainer and TRL ----------------------------------------------------------------------------------


TRL_ELSEWHERE = (
    EVALUATION
    | ROLLOUT
    | words("model_name_or_path use_peft load_in_4bit load_in_8bit use_bnb_nested_quant deepspeed fsdp fsdp_config")
)


def _trainer(document: dict[str, Any]) -> Reading:
    reading = Reading("trl", _model(document.get("model_name_or_path")))
    if reading.model:
        reading.read.append(f"model_name_or_path = {reading.model}")
    take_all(reading, document, TRAINER, elsewhere=TRL_ELSEWHERE)
    adapter = "lora" if document.get("use_peft") else None
    four, eight = bool(document.get("load_in_4bit")), bool(document.get("load_in_8bit"))
    method(reading, adapter, four, eight)
    if four and document.get("use_bnb_nested_quant"):
        reading.take("use_bnb_nested_quant", True, {"weights": "nf4-dq"})
    if "num_generations" in document or "max_completion_length" in document:
        reading.take("num_generations or max_completion_length", "set", {"trainer": "grpo"})
        rollout(reading, document)
    deepspeed(reading, document.get("deepspeed"))
    fsdp(reading, document.get("fsdp"), document.get("fsdp_config"))
    if four or eight:
        reading.fields["kbit"] = "trl"
    if adapter:
        reading.assume("LoRA rank 16, TRL's default", rank=16)
        reading.assume("LoRA dropout 0.05, TRL's default", dropout=True)
        reading.assume("LoRA on q_proj and v_proj, PEFT's default for most models", targets=("q_proj", "v_proj"))
    evaluation(reading, document)
    assume_trl(reading)
    return finish(reading)


# accelerate ---------------------------------------------------------------------------------------


ACCELERATE_ELSEWHERE = words(
    "mixed_precision num_processes gradient_accumulation_steps deepspeed_config fsdp_config distributed_type"
)


def _accelerate(document: dict[str, Any]) -> Reading:
    """An accelerate configuration says how a run is spread; the model has to come from the command line."""
    reading = Reading("accelerate")
    precision = document.get("mixed_precision")
    if precision in ("bf16", "fp16"):
        reading.take("mixed_precision", precision, mixed(precision)(True))
    elif precision == "no":
        reading.take("mixed_precision", precision, {"autocast": False})
    ranks = document.get("num_processes")
    if isinstance(ranks, int) and ranks >= 1:
        reading.take("num_processes", ranks, {"ranks": ranks})
    accumulate = document.get("gradient_accumulation_steps")
    if isinstance(accumulate, int):
        reading.take("gradient_accumulation_steps", accumulate, {"grad_accumulation": accumulate})
    settings = document.get("deepspeed_config")
    if isinstance(settings, dict):
        zero(reading, settings)
    fsdp(reading, None, document.get("fsdp_config"))
    others = ACCELERATE_ELSEWHERE
    reading.passed += [key for key, value in document.items() if value is not None and key not in others]
    return reading
