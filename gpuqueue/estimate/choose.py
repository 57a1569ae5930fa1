"""From what somebody chose to a whole Run: what follows from a choice, what is taken where nothing was chosen, and
which choices have no effect."""

from collections.abc import Callable, Iterable
from typing import Any

from gpuqueue.estimate.run import PLAIN, Run
from gpuqueue.estimate.shapes import ModelShape

Fields = dict[str, Any]

QLORA_WEIGHTS = "nf4-dq"  # the QLoRA paper's format
QLORA_PREPARED_BY = "trl"
TOKENS = 2048  # of a prompt, where no length was chosen; a training row has as many (Run.seq_len)
UNPACKED = "weights unpacked from mxfp4 to bf16, since packed ones are not trained (Mxfp4Config: dequantize)"
COMPLETION = 256  # GRPO's completions, TRL's default

_OF_TRAINING = (
    "batch seq_len grad_accumulation checkpointing optimizer loss ranks zero offload_optimizer trainer eval_batch "
    "autocast compiled liger expandable_segments fused_norms fused_mlp offload_activations packed"
)
_OF_LORA = "rank targets dropout modules_to_save"
_OF_GRPO = "completion_len steps_per_generation vllm_sleeps"
_OF_SERVING = "prompt_len new_tokens sequences kv_bytes"
_BELONGS: tuple[tuple[str, Callable[[Run], bool], str], ...] = (
    (_OF_TRAINING, lambda run: run.trains, "training"),
    (_OF_LORA, lambda run: run.method in ("lora", "qlora"), "LoRA and QLoRA"),
    (_OF_GRPO, lambda run: run.trains and run.trainer == "grpo", "GRPO"),
    (_OF_SERVING, lambda run: not run.trains, "inference and vLLM"),
    ("kbit", lambda run: run.bitsandbytes, "training on nf4 or int8 weights"),
    ("gpu_memory_utilization", lambda run: run.vllm_share > 0, "vLLM, and GRPO that has vLLM on the card"),
    ("attention", lambda run: run.method != "vllm", "training and inference; vLLM picks its own"),
)


def choose(shape: ModelShape, chosen: Fields, stored: Fields | None = None) -> Run:
    """The Run of what was chosen, over what the model's own files say (`stored`)."""
    stored = stored or {}
    fields = stored | chosen
    trains = fields.get("method", "lora") not in ("inference", "vllm")
    unpacked = trains and stored.get("weights") == "mxfp4" and "weights" not in chosen
    if unpacked:
        fields["weights"] = "bf16"
    if fields.get("method") == "qlora" and "weights" not in chosen and fields.get("weights", "bf16") in PLAIN:
        fields["weights"] = QLORA_WEIGHTS
    if fields.get("method", "lora") == "lora" and fields.get("weights", "bf16") not in (*PLAIN, "gguf"):
        fields["method"] = "qlora"
    if fields.get("method") == "qlora":
        fields.setdefault("kbit", QLORA_PREPARED_BY)
    if fields.get("weights") != stored.get("weights"):
        fields.pop("weight_bytes", None)
    if fields.get("trainer") == "grpo":
        fields.setdefault("completion_len", COMPLETION)
    labels = fields.pop("labels", shape.labels)
    if fields.get("trainer") == "reward" and trains and not fields.get("value_head"):
        labels = labels or 1  # TRL loads it as AutoModelForSequenceClassification
    if labels and labels != shape.labels:
        shape = shape.as_classifier(labels)
    if unpacked and fields["weights"] == "bf16":
        shape = shape._replace(remarks=(*shape.remarks, UNPACKED))
    source = "given" if "weights" in chosen or unpacked else "stored" if "weights" in stored else "assumed"
    run = Run(shape, weights_source=source, **fields)
    if run.weights in PLAIN and not (run.trains and run.autocast):
        run = run._replace(compute=chosen.get("compute", run.weights))
    if not run.trains:
        run = _serving(run, fields)
    return run


def _serving(run: Run, fields: Fields) -> Run:
    if not run.prompt_len and not run.new_tokens:
        run = run._replace(prompt_len=TOKENS)
    return run._replace(kv_bytes=fields.get("kv_bytes", run.compute_bytes))


def unused(run: Run, names: Iterable[str]) -> list[tuple[str, str]]:
    """(field, what it belongs to) of those fields that change nothing in this run."""
    wanted = set(names)
    return [
        (field, owner)
        for fields, applies, owner in _BELONGS
        for field in fields.split()
        if field in wanted and not applies(run)
    ]
