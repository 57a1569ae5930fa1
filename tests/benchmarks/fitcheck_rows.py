"""What fitcheck-llm says to the same runs, where it can express them. A benchmark dependency only."""

from gpuqueue.estimate.run import Run
from gpuqueue.estimate.states import ALIASES, FUSED

try:
    import fitcheck
except ImportError:
    fitcheck = None

VERSION = fitcheck.__version__ if fitcheck else None
CARDS = {
    "Tesla T4": "t4",
    "A100-80GB": "a100-80",
    "A100-40GB": "a100-40",
    "NVIDIA L40S": "l40s",
    "A10G-24GB": "a10",
}
LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
QUANTISATION = {"bf16": "none", "fp16": "none", "fp32": "none", "nf4": "nf4", "nf4-dq": "nf4", "int8": "int8"}


def predict(run: Run, row: dict[str, str]) -> dict[str, float]:
    """quantity -> MiB; empty where fitcheck has no words for the run: MoE, GPTQ, AWQ, fp8, odd targets, and
    whatever it refuses itself."""
    try:
        return _predict(run, row)
    except ValueError:
        return {}


def _predict(run: Run, row: dict[str, str]) -> dict[str, float]:
    if fitcheck is None or run.weights not in QUANTISATION or run.shape.experts or not run.shape.gated_mlp:
        return {}
    shape = run.shape
    model = fitcheck.ModelConfig(
        name=shape.name,
        num_params=shape.params,
        hidden_size=shape.hidden,
        num_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_kv_heads=shape.kv_heads,
        intermediate_size=shape.ffn,
        vocab_size=shape.vocab,
        head_dim=shape.head_dim,
        tie_word_embeddings=shape.tied,
    )
    card = fitcheck.GPU_DB[CARDS.get(row["gpu"], "a100-80")]
    if not run.trains:
        return _inference(run, model, card)
    targets = _targets(run)
    if run.method != "full" and not targets:
        return {}
    training = fitcheck.TrainingConfig(
        precision=run.compute if run.weights not in ("fp32",) else "fp32",
        quantization=QUANTISATION[run.weights],
        double_quant=run.weights == "nf4-dq",
        optimizer="adam8bit" if "8bit" in run.optimizer else "adamw",
        optimizer_dtype="fp32" if run.method != "full" else run.compute,
        batch_size=run.batch,
        seq_len=run.seq_len,
        lora_rank=None if run.method == "full" else run.rank,
        lora_targets=targets,
        grad_checkpoint=run.checkpointing,
        flash_attn=run.attention != "eager",
    )
    report = fitcheck.estimate(model, training, card)
    return {"torch_peak": report.total_mib - report.overhead_mib, "occupied": report.total_mib}


def _inference(run: Run, model: object, card: object) -> dict[str, float]:
    serving = fitcheck.ServingConfig(
        precision=run.compute,
        quantization=QUANTISATION[run.weights],
        double_quant=run.weights == "nf4-dq",
        seq_len=run.prompt_len + run.new_tokens,
    )
    report = fitcheck.estimate_inference(model, serving, card)
    return {"torch_peak": report.total_mib - report.overhead_mib, "occupied": report.total_mib}


def _targets(run: Run) -> list[str]:
    wanted: list[str] = []
    for target in run.targets:
        names = LINEARS if target in ("all-linear", "all") else FUSED.get(target, (ALIASES.get(target, target),))
        wanted += [name for name in names if name in LINEARS and name not in wanted]
    return wanted
