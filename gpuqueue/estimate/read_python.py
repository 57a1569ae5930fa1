"""Reads the keywords of TrainingArguments, LoraConfig and their like from a Python file's syntax tree."""

import ast
from pathlib import Path
from typing import Any

from gpuqueue.estimate.reading import (
    EVALUATION,
    ROLLOUT,
    UNCOUNTED,
    Reading,
    UnreadableConfigError,
    assume_trainer,
    assume_trl,
    deepspeed,
    evaluation,
    finish,
    fsdp,
    method,
    rollout,
    take_all,
)
from gpuqueue.estimate.settings import TRAINER, Reader, checkpointing, dropout, names, number, targets

TRL_CONFIGS = {
    "SFTConfig": "sft",
    "DPOConfig": "dpo",
    "GRPOConfig": "grpo",
    "ORPOConfig": "orpo",
    "CPOConfig": "orpo",
    "KTOConfig": "kto",
    "RewardConfig": "reward",
}
ARGUMENTS = {"TrainingArguments", "Seq2SeqTrainingArguments", *TRL_CONFIGS}
LORA: dict[str, Reader] = {
    "r": number("rank"),
    "lora_dropout": dropout,
    "target_modules": targets,
    "modules_to_save": names("modules_to_save"),
    "use_gradient_checkpointing": checkpointing,  # Unsloth's get_peft_model
}
TRAINERS = {"Trainer", *(name.replace("Config", "Trainer") for name in TRL_CONFIGS)}
LOADERS = {"from_pretrained"}
LOADED: dict[str, Reader] = TRAINER | {"num_labels": number("labels")}
CLASSIFIERS = ("ForSequenceClassification", "ForTokenClassification")
KBIT_PREPARATION = "prepare_model_for_kbit_training"
READ = {*ARGUMENTS, *TRAINERS, "LoraConfig", "BitsAndBytesConfig", KBIT_PREPARATION}
_QUANTISATION = frozenset(("load_in_4bit", "load_in_8bit", "bnb_4bit_use_double_quant", "bnb_4bit_quant_type"))
_LOADED = _QUANTISATION | {"model"}
_ELSEWHERE = EVALUATION | ROLLOUT | {"deepspeed", "fsdp", "fsdp_config", "model_init_kwargs"}
_MATTERS = frozenset(TRAINER) | LORA.keys() | _ELSEWHERE | _QUANTISATION | UNCOUNTED
UNKNOWN = object()


def read_python(text: str, path: Path) -> Reading:
    """What the file's calls say. Names are followed to module-level constants, argparse defaults and
    dataclass defaults; everything else that is no literal is listed as not read."""
    try:
        tree = ast.parse(text, filename=str(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or text.partition("\0")[0].count("\n") + 1  # null bytes have none
        what = error.msg if isinstance(error, SyntaxError) else error
        raise UnreadableConfigError(f"{path}, line {line}: not valid Python ({what})") from error
    reading = Reading("python")
    constants = _constants(tree)
    seen: dict[str, dict[str, Any]] = {}
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = _called(call)
        if name == "get_peft_model" and any(keyword.arg == "r" for keyword in call.keywords):
            name = "LoraConfig"  # Unsloth takes LoRA's settings here
        if name in READ or _loads_model(call):
            seen.setdefault(name, {}).update(_keywords(call, constants, reading, name))
            if name in LOADERS and _owner(call).endswith(CLASSIFIERS):
                seen[name].setdefault("num_labels", 2)  # PretrainedConfig's default
    if not seen:
        raise UnreadableConfigError(f"{path}: no call of TrainingArguments, SFTConfig, LoraConfig or from_pretrained")
    _interpret(reading, seen)
    return finish(reading)


def _interpret(reading: Reading, seen: dict[str, dict[str, Any]]) -> None:
    loaded = seen.get("from_pretrained", {})
    for name in ("from_pretrained", *sorted(TRAINERS)):
        named = seen.get(name, {}).get("model")
        if isinstance(named, str) and reading.model is None:
            reading.model = named
            reading.read.append(f"{name}({named!r})")
    take_all(reading, loaded, LOADED, "from_pretrained.", _LOADED)
    for name in sorted(TRAINERS & seen.keys()):  # TRL before 0.13 took lengths here
        take_all(reading, seen[name], TRAINER, f"{name}.", _LOADED)
    for name in sorted(ARGUMENTS & seen.keys()):
        take_all(reading, seen[name], TRAINER, f"{name}.", _ELSEWHERE)
        deepspeed(reading, seen[name].get("deepspeed"))
        fsdp(reading, seen[name].get("fsdp"), seen[name].get("fsdp_config"))
        evaluation(reading, seen[name])
        if TRL_CONFIGS.get(name, "sft") != "sft":
            reading.take(name, "used", {"trainer": TRL_CONFIGS[name]})
        if name == "GRPOConfig":
            rollout(reading, seen[name])
        if "model_init_kwargs" in seen[name] and isinstance(seen[name]["model_init_kwargs"], dict):
            take_all(reading, seen[name]["model_init_kwargs"], TRAINER, "model_init_kwargs.")
    quantisation = seen.get("BitsAndBytesConfig", {}) | {
        key: value for key, value in loaded.items() if key in ("load_in_4bit", "load_in_8bit")
    }
    four, eight = quantisation.get("load_in_4bit") is True, quantisation.get("load_in_8bit") is True
    method(reading, "lora" if "LoraConfig" in seen else None, four, eight)
    if four and quantisation.get("bnb_4bit_use_double_quant") is True:
        reading.take("bnb_4bit_use_double_quant", True, {"weights": "nf4-dq"})
    take_all(reading, seen.get("LoraConfig", {}), LORA, "LoraConfig.")
    take_all(reading, seen.get("BitsAndBytesConfig", {}), {}, "BitsAndBytesConfig.", _QUANTISATION)
    if "LoraConfig" in seen:
        reading.assume("LoRA on q_proj and v_proj, PEFT's default for most models", targets=("q_proj", "v_proj"))
    if four or eight:
        prepared = KBIT_PREPARATION in seen
        by_trl = any(name in seen for name in TRL_CONFIGS)
        reading.fields["kbit"] = "peft" if prepared else "trl" if by_trl else "none"
    _assume_defaults(reading, seen)


def _assume_defaults(reading: Reading, seen: dict[str, dict[str, Any]]) -> None:
    if any(name in seen for name in TRL_CONFIGS):
        assume_trl(reading)
    else:
        reading.assume("no gradient checkpointing, Trainer's default", checkpointing=False)
        reading.assume("no mixed precision, Trainer's default", autocast=False)
        reading.assume("sequences of 2048 tokens: the tokenizer's call decides, which is not read", seq_len=2048)
        assume_trainer(reading)


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Name):
        return call.func.id
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _loads_model(call: ast.Call) -> bool:
    """from_pretrained of a model class; tokenizers, processors and configurations have one too."""
    return _called(call) in LOADERS and "Model" in _owner(call)


def _owner(call: ast.Call) -> str:
    """The class whose method is called, without its module."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""


def _keywords(call: ast.Call, constants: dict[str, Any], reading: Reading, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    pairs: list[tuple[str | None, ast.expr]] = [(keyword.arg, keyword.value) for keyword in call.keywords]
    if name in LOADERS and call.args:
        pairs.append(("model", call.args[0]))
    for key, node in pairs:
        value = _value(node, constants)
        if key is None:
            found |= value if isinstance(value, dict) else {}
        elif value is UNKNOWN:
            if key in _MATTERS:
                reading.unread.append(f"{name}.{key}: not a literal (line {node.lineno})")
            elif name not in TRAINERS:  # whose data and model are objects
                reading.passed.append(f"{name}.{key}")
        elif key in ("pretrained_model_name_or_path", "model_name"):
            found["model"] = value
        else:
            found[key] = value
    return found


def _constants(tree: ast.Module) -> dict[str, Any]:
    """Names, `args.name` from argparse and `Class.name` from class bodies that hold literals."""
    found: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = _value(node.value, found)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            found[node.target.id] = found["." + node.target.id] = _value(node.value, found)
        elif isinstance(node, ast.Call) and _called(node) == "add_argument" and node.args:
            option = _value(node.args[-1], found)
            default = next((each.value for each in node.keywords if each.arg == "default"), None)
            if isinstance(option, str) and default is not None:
                found["." + option.lstrip("-").replace("-", "_")] = _value(default, found)
    return found


def _value(node: ast.expr, constants: dict[str, Any]) -> Any:
    """The literal that this expression is, or UNKNOWN. torch.bfloat16 reads as "bfloat16"."""
    if isinstance(node, ast.Name):
        return constants.get(node.id, UNKNOWN)
    if isinstance(node, ast.Attribute):
        if isinstance(node.value, ast.Name) and node.value.id == "torch":
            return node.attr
        return constants.get("." + node.attr, UNKNOWN)
    if isinstance(node, ast.Call) and _called(node) == "dict":
        named = {each.arg: _value(each.value, constants) for each in node.keywords if each.arg}
        return {key: value for key, value in named.items() if value is not UNKNOWN}
    if isinstance(node, ast.Dict):
        keys = [_value(key, constants) if key else UNKNOWN for key in node.keys]
        pairs = zip(keys, (_value(value, constants) for value in node.values), strict=True)
        return {key: value for key, value in pairs if isinstance(key, str) and value is not UNKNOWN}
    if isinstance(node, ast.List | ast.Tuple):
        items = [_value(item, constants) for item in node.elts]
        return UNKNOWN if UNKNOWN in items else items
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):  # no literal, or one like {[]}
        return UNKNOWN
