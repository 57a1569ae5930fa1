"""Reads Axolotl, LLaMA-Factory, TRL and accelerate configuration files. Nothing in them is run."""

import json
from pathlib import Path
from typing import Any

from gpuqueue.estimate.read_yaml import YamlError, parse
from gpuqueue.estimate.reading import (
    TRAINER,
    Reader,
    Reading,
    UnreadableConfigError,
    assume_trainer,
    assume_trl,
    deepspeed,
    finish,
    flag,
    method,
    mixed,
    names,
    number,
    take_all,
    targets,
    trainer_kind,
    zero,
)


def read_training(path: Path) -> Reading:
    """What the file says. A .py file is parsed, .yaml, .yml and .json are read; anything else is refused."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableConfigError(f"{path} cannot be read: {error}") from error
    if path.suffix == ".py":
        from gpuqueue.estimate.read_python import read_python

        return read_python(text, path)
    if path.suffix not in (".yaml", ".yml", ".json"):
        raise UnreadableConfigError(f"{path}: --from reads .py, .yaml, .yml and .json")
    try:
        document = json.loads(text) if path.suffix == ".json" else parse(text)
    except YamlError as error:
        raise UnreadableConfigError(f"{path}, {error}") from error
    except ValueError as error:
        raise UnreadableConfigError(f"{path}: {error}") from error
    if not isinstance(document, dict):
        raise UnreadableConfigError(f"{path} holds no settings")
    return read_document(document, path)


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


def _axolotl(document: dict[str, Any]) -> Reading:
    reading = Reading("axolotl", str(document["base_model"]))
    reading.read.append(f"base_model = {reading.model}")
    take_all(reading, document, AXOLOTL)
    adapter = document.get("adapter")
    method(reading, adapter, bool(document.get("load_in_4bit")), bool(document.get("load_in_8bit")))
    plugins = " ".join(str(each) for each in document.get("plugins") or ())
    if "CutCrossEntropy" in plugins:
        reading.take("plugins", "CutCrossEntropy", {"loss": "linear"})
    if document.get("rl"):
        reading.take("rl", document["rl"], trainer_kind(str(document["rl"])))
    deepspeed(reading, document.get("deepspeed"))
    if document.get("fsdp") or document.get("fsdp_config"):
        reading.take("fsdp", "set", {"zero": 3})
    reading.assume("no gradient checkpointing: the file does not turn it on", checkpointing=False)
    reading.assume("micro batch of 1", batch=1)
    reading.assume("optimizer adamw_torch_fused, Axolotl's default", optimizer="adamw_fused")
    return finish(reading)


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


def _llama_factory(document: dict[str, Any]) -> Reading:
    reading = Reading("llama-factory", str(document.get("model_name_or_path")))
    reading.read.append(f"model_name_or_path = {reading.model}")
    take_all(reading, document, LLAMA_FACTORY)
    bits = document.get("quantization_bit")
    adapter = {"lora": "lora", "oft": "lora"}.get(str(document.get("finetuning_type", "lora")))
    method(reading, adapter, bits == 4, bits == 8)
    if bits == 4 and document.get("double_quantization", True):
        reading.fields["weights"] = "nf4-dq"
        reading.assumed.append("double quantisation, LLaMA-Factory's default")
    if bits:
        reading.assume("nothing is made fp32: LLaMA-Factory does without PEFT's k-bit preparation", kbit="none")
    if document.get("stage") not in (None, "sft", "pt"):
        reading.take("stage", document["stage"], trainer_kind(str(document["stage"])))
    deepspeed(reading, document.get("deepspeed"))
    if not document.get("disable_gradient_checkpointing"):
        reading.assume("gradient checkpointing, which LLaMA-Factory turns on unasked", checkpointing=True)
    reading.assume("cut-off length 2048, LLaMA-Factory's default", seq_len=2048)
    assume_trainer(reading)
    if reading.fields["method"] != "full":
        reading.assume("LoRA on all linear layers, LLaMA-Factory's default", targets=("all-linear",))
        reading.assume("LoRA rank 8, LLaMA-Factory's default", rank=8)
    return finish(reading)


# Trainer and TRL ----------------------------------------------------------------------------------


def _trainer(document: dict[str, Any]) -> Reading:
    reading = Reading("trl", str(document["model_name_or_path"]) if "model_name_or_path" in document else None)
    if reading.model:
        reading.read.append(f"model_name_or_path = {reading.model}")
    take_all(reading, document, TRAINER)
    adapter = "lora" if document.get("use_peft") else None
    method(reading, adapter, bool(document.get("load_in_4bit")), bool(document.get("load_in_8bit")))
    deepspeed(reading, document.get("deepspeed"))
    reading.fields["kbit"] = "trl"
    assume_trl(reading)
    return finish(reading)


# accelerate ---------------------------------------------------------------------------------------


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
    fsdp = document.get("fsdp_config")
    if isinstance(fsdp, dict):
        strategy = str(fsdp.get("fsdp_sharding_strategy", "FULL_SHARD")).upper()
        stage = {"NO_SHARD": 0, "SHARD_GRAD_OP": 2}.get(strategy, 3)
        offload = bool(fsdp.get("fsdp_offload_params"))
        reading.take("fsdp_sharding_strategy", strategy, {"zero": stage, "offload_optimizer": offload})
        if fsdp.get("fsdp_activation_checkpointing"):
            reading.take("fsdp_activation_checkpointing", True, {"checkpointing": True})
    return reading
