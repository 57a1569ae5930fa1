"""What an estimate takes for granted, in sentences for the person who reads it."""

from gpuqueue.estimate.run import Run

TRAINERS = {
    "dpo": "DPO puts chosen and rejected through together: twice the batch (TRL: concatenated_forward)",
    "orpo": "ORPO puts chosen and rejected through together: twice the batch (TRL: concatenated_forward)",
    "kto": "KTO puts a mismatched pair through as well: twice the batch (TRL: KTOTrainer)",
    "reward": "the reward model sees chosen and rejected together: twice the batch (TRL: RewardTrainer)",
    "grpo": "GRPO: the batch counts completions, logits are those of completions (TRL: logits_to_keep)",
}


def of(run: Run) -> tuple[str, ...]:
    """The sentences that belong to this run, most weighty first."""
    if run.method == "vllm":
        return (*_vllm(run), _context(run))
    if not run.trains:
        length = run.prompt_len + run.new_tokens
        sequences = "1 sequence" if run.sequences == 1 else f"{run.sequences} sequences"
        return (f"{sequences} of {length} tokens in the cache", _context(run))
    return (*_training(run), _context(run))


def _training(run: Run) -> list[str]:
    found = [f"every batch is {run.batch} x {run.seq_len} tokens full: padding takes memory like text"]
    if run.trainer in TRAINERS:
        found.append(TRAINERS[run.trainer])
    if run.method == "full" and run.weights in ("bf16", "fp16") and not run.zero:
        found.append(f"weights, gradients and optimizer states all in {run.weights}; fp32 weights take twice that")
    if run.bitsandbytes and run.kbit == "peft":
        found.append("prepare_model_for_kbit_training: embeddings, head, norms and residual stream in fp32")
    if run.optimizer.startswith("paged"):
        found.append("paged optimizer states are counted as if they stay on the card; under pressure they move off")
    if run.loss == "eager":
        found.append("cross entropy over whole logits; a fused loss takes far less, where the trainer has one")
    if run.zero and run.ranks == 1:
        found.append("nothing is sharded: one card only")
    if run.shape.experts:
        found.append("all experts' weights are on the card; their tokens are spread evenly")
    if run.eval_keeps_logits:
        found.append("evaluation keeps every row's logits on the card (no preprocess_logits_for_metrics)")
    return found


def _vllm(run: Run) -> list[str]:
    share = run.gpu_memory_utilization or 0.9
    if run.card_mib:
        return [f"vLLM fills {share:.0%} of the card whatever it needs (gpu_memory_utilization)"]
    return ["vLLM is asked for what it needs only; left to its default it fills 90 % of the card"]


def _context(run: Run) -> str:
    told = {
        "published": "a published figure; gpuqueued init measures a node's own",
        "measured": "measured on this node, and what PyTorch's kernels add",
        "given": "as given",
    }
    return f"CUDA context of {run.context_mib} MiB ({told[run.context_source]})"
