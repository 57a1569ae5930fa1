"""Whether a run fits, and which changes make it fit: the cheap ones first."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gpuqueue.estimate.choose import QLORA_PREPARED_BY, QLORA_WEIGHTS
from gpuqueue.estimate.estimate import Estimate, estimate
from gpuqueue.estimate.run import Run

FITS, TIGHT, DOES_NOT_FIT = "fits", "tight", "does not fit"
WORTH_MIB = 64
SHORTEST = 512
SMALLEST_RANK = 8

Suggestion = tuple[Run, str, str]  # the changed run, what was changed, what that costs
Step = Callable[[Run], Suggestion | None]  # None: this step does not apply


class Change(NamedTuple):
    """One step on the way to fitting. `saves_mib` is of what the card shows, after the steps before it."""

    what: str
    costs: str
    run: Run
    saves_mib: int
    occupied_mib: int
    verdict: str


def verdict(found: Estimate, limit_mib: int) -> str:
    """fits: even the upper end is within the limit; tight: only less than that; does not fit: the
    lower bound is above it, or vLLM's share of the card is too small for what it needs."""
    if not found.starts or found.needed_mib > limit_mib:
        return DOES_NOT_FIT
    return FITS if found.occupied_high_mib <= limit_mib else TIGHT


def advise(run: Run, budget_mib: int) -> tuple[Change, ...]:
    """The changes after which the run fits, the first of STEPS that helps before the next, none that is not
    needed. Empty where it fits as it is. The last one says whether all of them were enough."""
    chosen: list[Step] = []
    left: list[Step] = list(STEPS)
    now, before = run, estimate(run)
    while verdict(before, budget_mib) != FITS:
        found = next(_worth(now, before, left, budget_mib), None)
        if found is None:
            break
        at, now, before = found
        chosen.append(left.pop(at))
    if verdict(before, budget_mib) == FITS:
        chosen = _only_needed(run, budget_mib, chosen)
    return _changes(run, budget_mib, chosen)


def _worth(run: Run, before: Estimate, steps: list[Step], budget_mib: int) -> Iterator[tuple[int, Run, Estimate]]:
    for at, step in enumerate(steps):
        changed = step(run)
        if changed is None:
            continue
        after = estimate(changed[0])
        saved = before.occupied_mib - after.occupied_mib >= WORTH_MIB
        if saved or verdict(after, budget_mib) == FITS:
            yield at, changed[0], after


def _only_needed(run: Run, budget_mib: int, steps: list[Step]) -> list[Step]:
    """Drops the steps, dearest first, without which the rest is enough."""
    kept = list(steps)
    for step in sorted(steps, key=STEPS.index, reverse=True):
        fewer = list(kept)
        fewer.remove(step)
        changes = _changes(run, budget_mib, fewer)
        if changes and changes[-1].verdict == FITS and min(change.saves_mib for change in changes) >= WORTH_MIB:
            kept = fewer
    return kept


def _changes(run: Run, budget_mib: int, steps: list[Step]) -> tuple[Change, ...]:
    found = []
    card_mib = run.card_mib
    before = estimate(run).occupied_mib
    for step in steps:
        changed = step(run)
        if changed is None:
            continue
        run, what, costs = changed
        after = estimate(run)
        if run.method == "vllm" and card_mib and not run.card_mib:
            what += f", gpu_memory_utilization {-(-100 * after.occupied_mib // card_mib) / 100:g}"
        found.append(
            Change(what, costs, run, before - after.occupied_mib, after.occupied_mib, verdict(after, budget_mib))
        )
        before = after.occupied_mib
    return tuple(found)


# The steps, cheapest first ------------------------------------------------------------------------


def _eval_logits(run: Run) -> Suggestion | None:
    if not run.trains or not run.eval_batch or not run.eval_keeps_logits:
        return None
    return (
        run._replace(eval_keeps_logits=False),
        "evaluation that keeps no logits on the card (prediction_loss_only, or eval_accumulation_steps)",
        "no metrics from logits; with eval_accumulation_steps host memory and time",
    )


def _eval_batch(run: Run) -> Suggestion | None:
    if not run.trains or run.eval_batch <= 1:
        return None
    return run._replace(eval_batch=1), "per_device_eval_batch_size 1", "a slower evaluation; the result is the same"


def _share(run: Run) -> Suggestion | None:
    if run.method != "vllm" or not run.card_mib:
        return None
    return run._replace(card_mib=0), "a share of the card that holds what vLLM needs", "no room for more sequences"


def _sleep(run: Run) -> Suggestion | None:
    if not run.trains or not run.vllm_share or run.vllm_sleeps:
        return None
    return run._replace(vllm_sleeps=True), "vllm_enable_sleep_mode", "vLLM's weights travel to the card every step"


def _fused_loss(run: Run) -> Suggestion | None:
    if not run.trains or run.loss == "linear":
        return None
    return (
        run._replace(loss="linear"),
        "a loss that never writes the logits (Liger, Cut Cross Entropy)",
        "a package",
    )


def _checkpointing(run: Run) -> Suggestion | None:
    if not run.trains or run.checkpointing:
        return None
    return (
        run._replace(checkpointing=True),
        "gradient checkpointing",
        "a third more computing: one more forward pass",
    )


def _micro_batch(run: Run) -> Suggestion | None:
    if not run.trains or run.batch == 1:
        return None
    accumulation = run.grad_accumulation * run.batch
    return (
        run._replace(batch=1, grad_accumulation=accumulation),
        f"micro-batch 1 with gradient accumulation {accumulation}",
        "smaller matrices keep the card less busy; the result is the same",
    )


def _nf4(run: Run) -> Suggestion | None:
    if run.method not in ("lora", "qlora") or run.weights in ("nf4-dq", "gptq4", "awq"):
        return None
    kbit = run.kbit if run.bitsandbytes else QLORA_PREPARED_BY
    return (
        run._replace(method="qlora", weights=QLORA_WEIGHTS, kbit=kbit, weight_bytes=0),
        "base model in nf4 with double quantisation",
        "slower steps, since weights are unpacked each time; a little quality",
    )


def _awq(run: Run) -> Suggestion | None:
    if run.trains or run.quantised:
        return None
    changed = run._replace(weights="awq", compute="fp16", kv_bytes=min(2, run.kv_bytes), weight_bytes=0)
    return changed, "a 4-bit model (AWQ, GPTQ)", "a little quality"


def _optimizer(run: Run) -> Suggestion | None:
    if not run.trains or "8bit" in run.optimizer or run.optimizer in ("sgd", "adafactor"):
        return None
    return (
        run._replace(optimizer="paged_adamw_8bit"),
        "paged 8-bit AdamW",
        "bitsandbytes; rarely seen in the loss",
    )


def _sequence(run: Run) -> Suggestion | None:
    if not run.trains or run.seq_len // 2 < SHORTEST:
        return None
    half = run.seq_len // 2
    return run._replace(seq_len=half), f"sequences of {half} tokens", "longer samples are cut off"


def _cache(run: Run) -> Suggestion | None:
    if run.trains or run.kv_bytes == 1:
        return None
    return run._replace(kv_bytes=1), "the KV cache in fp8", "a little quality at long context"


def _lora(run: Run) -> Suggestion | None:
    if run.method != "full":
        return None
    compute = "bf16" if run.compute == "fp32" else run.compute
    changed = run._replace(method="lora", weights="bf16", compute=compute, rank=16, autocast=True, weight_bytes=0)
    return changed, "LoRA of rank 16 instead of training everything", "less capacity to learn"


def _rank(run: Run) -> Suggestion | None:
    if run.method not in ("lora", "qlora") or run.rank <= SMALLEST_RANK:
        return None
    return (
        run._replace(rank=SMALLEST_RANK),
        f"rank {SMALLEST_RANK}",
        "less capacity to learn, for little memory",
    )


STEPS = (
    _eval_logits,
    _eval_batch,
    _share,
    _sleep,
    _fused_loss,
    _checkpointing,
    _micro_batch,
    _awq,
    _nf4,
    _optimizer,
    _cache,
    _sequence,
    _sequence,
    _lora,
    _rank,
)
