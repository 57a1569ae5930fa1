"""What an estimate takes for granted, in sentences for the person who reads it."""

from gpuqueue.estimate.run import VLLM_DEFAULT_SHARE, Run
from gpuqueue.estimate.states import EMBEDDINGS, HEADS, absent_targets
from gpuqueue.estimate.weights import experts_stay_plain

TRAINERS = {
    "dpo": "DPO puts chosen and rejected through together: twice the batch (TRL: concatenated_forward)",
    "orpo": "ORPO puts chosen and rejected through together: twice the batch (TRL: concatenated_forward)",
    "kto": "KTO puts a mismatched pair through as well: twice the batch (TRL: KTOTrainer)",
    "reward": "the reward model sees chosen and rejected together: twice the batch (TRL: RewardTrainer)",
    "grpo": "GRPO: the batch counts completions, logits are those of completions (TRL: logits_to_keep)",
}
KBIT = {
    "peft": "prepare_model_for_kbit_training: embeddings, head, norms and residual stream in fp32",
    "trl": "prepared by TRL: norms and residual stream in fp32, embeddings and head in bf16",
    "none": "not prepared for k-bit training: nothing is turned into fp32",
}


def of(run: Run) -> tuple[str, ...]:
    """The sentences that belong to this run, most weighty first."""
    return (
        *run.shape.remarks,
        *(_training(run) if run.trains else _serving(run)),
        *_head(run),
        *_loaded(run),
        _context(run),
    )


def _head(run: Run) -> list[str]:
    if labels := run.shape.labels:
        return [f"a head of {_some(labels, 'output')} (sequence classification): no logits of the vocabulary"]
    return []


def _loaded(run: Run) -> list[str]:
    if experts_stay_plain(run) and not run.weight_bytes:
        return ["experts stay in 16 bit: bitsandbytes quantises linear layers, which they are not since Transformers 5"]
    if run.weights == "mxfp4" and run.method != "vllm":
        return ["experts stay packed: without its mxfp4 kernels Transformers unpacks them to bf16, four times as much"]
    if run.weights_source == "given" or run.weights not in ("bf16", "fp16") or run.method == "vllm":
        return []
    why = "as they are stored" if run.weights_source == "stored" else "since nothing says how they are stored"
    return [f"weights in {run.weights}, {why}: Transformers 5 loads them so, 4 in fp32 unless dtype is set"]


def _training(run: Run) -> list[str]:
    found = [_rows(run)]
    if run.trainer in TRAINERS:
        found.append(TRAINERS[run.trainer])
    if run.trainer == "grpo":
        found += _rollout(run)
    if run.method == "full" and run.weights in ("bf16", "fp16") and not run.zero:
        found.append(f"weights, gradients and optimizer states all in {run.weights}; fp32 weights take twice that")
    if run.bitsandbytes:
        found.append(KBIT[run.kbit])
    if absent := absent_targets(run) if run.method != "full" and run.adapter == "lora" else ():
        found.append(f"no {', '.join(absent)} in this model: not adapted")
    if unknown := [name for name in run.modules_to_save if name not in (*HEADS, *EMBEDDINGS)]:
        found.append(f"modules_to_save {', '.join(unknown)}: not counted, only embeddings and head are")
    if run.optimizer.startswith("paged"):
        found.append("paged optimizer states are counted as if they stay on the card; under pressure they move off")
    if run.value_head:
        found.append("LLaMA-Factory keeps the language model's head beside the reward's: its logits are computed too")
    if run.loss == "eager" and not run.shape.labels and not run.value_head:
        found.append("cross entropy over whole logits; a fused loss takes far less, where the trainer has one")
    if run.zero and run.ranks == 1:
        found.append("nothing is sharded: one card only, unless --ranks says otherwise")
    if run.ranks > 1 and not run.zero:
        found.append(f"each of {run.ranks} cards holds the whole model, and DDP's buckets the gradients a second time")
    if run.shape.experts:
        found.append("all experts' weights are on the card; their tokens are spread evenly")
    if run.eval_keeps_logits:
        found.append("evaluation keeps every row's logits on the card (no preprocess_logits_for_metrics)")
    return found


def _rows(run: Run) -> str:
    if run.trainer == "grpo":
        told = f"{_some(run.batch, 'completion')} of {run.completion_len} tokens, each after a prompt of {run.seq_len}"
        return f"every batch is {told}: padding takes memory like text"
    return f"every batch is {run.batch} x {run.seq_len} tokens full: padding takes memory like text"


def _rollout(run: Run) -> list[str]:
    at_once = run.batch * (run.steps_per_generation or run.grad_accumulation)
    written = f"completions written at once: {at_once} (steps_per_generation x batch; num_generations share a prompt)"
    if not run.vllm_share:
        return [written]
    sleeps = "gives it back while the model learns" if run.vllm_sleeps else "keeps it while the model learns"
    share = f"{run.vllm_share:.0%} of the card" if run.card_mib else "what it needs, since no --card is known"
    return [written, f"vLLM writes them on the same card: it fills {share}, and {sleeps}"]


def _serving(run: Run) -> list[str]:
    length = run.prompt_len + run.new_tokens
    found = [f"{_some(run.sequences, 'sequence')} of {length} tokens in the cache"]
    if run.method == "vllm":
        found.append("max_model_len set to that: left to the model's own, vLLM wants room for that much")
        share = f"{run.vllm_share:.0%} of the card whatever it needs" if run.card_mib else "what it needs only"
        found.append(f"vLLM fills {share} (gpu_memory_utilization; {VLLM_DEFAULT_SHARE:.0%} is its default)")
    return found


def _some(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _context(run: Run) -> str:
    told = {
        "published": "a published figure; gpuqueued init measures a node's own",
        "measured": "measured on this node, and what PyTorch's kernels add",
        "given": "as given",
    }
    return f"CUDA context of {run.context_mib} MiB ({told[run.context_source]})"
