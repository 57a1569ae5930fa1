"""What a card can hold: model sizes against ways to train and serve them."""

from typing import NamedTuple

from gpuqueue.estimate.advise import verdict
from gpuqueue.estimate.catalogue import find
from gpuqueue.estimate.choose import Fields, choose
from gpuqueue.estimate.estimate import estimate
from gpuqueue.estimate.run import Run

MODELS = (
    "Qwen2.5-0.5B",
    "Qwen2.5-1.5B",
    "Qwen2.5-3B",
    "Qwen2.5-7B",
    "Llama-3.1-8B",
    "Qwen2.5-14B",
    "Qwen2.5-32B",
    "Llama-3.1-70B",
)
TOKENS = 2048
STEP = 256
LONGEST = 131072
METHODS: dict[str, Fields] = {
    "full": {"method": "full"},
    "full 8-bit": {"method": "full", "optimizer": "adamw_8bit"},
    "LoRA": {"method": "lora"},
    "LoRA fused": {"method": "lora", "loss": "linear"},
    "QLoRA": {"method": "qlora"},
    "QLoRA fused": {"method": "qlora", "loss": "linear"},
    "serve": {"method": "inference"},
    "serve 4-bit": {"method": "inference", "weights": "awq"},
}


class Cell(NamedTuple):
    """One model by one method on the card: batch 1 x 2048 tokens, and the longest sequence that fits it."""

    model: str
    method: str
    needed_mib: int
    occupied_mib: int
    verdict: str
    longest: int  # tokens at batch 1 that fit, by the verdict's rule; 0: not even STEP tokens


def budget(card_mib: int, context: Fields | None = None) -> list[Cell]:
    """A cell for each of MODELS and METHODS, all else as `gq estimate` takes it where nothing is said. `context` are
    the fields of a Run that tell of the CUDA context."""
    cells = []
    for model in MODELS:
        shape = find(model)
        for name, fields in METHODS.items():
            run = choose(shape, (context or {}) | fields)
            found = estimate(_of_length(run, TOKENS))
            longest = _longest(run, card_mib)
            cells.append(Cell(model, name, found.needed_mib, found.occupied_mib, verdict(found, card_mib), longest))
    return cells


def _of_length(run: Run, tokens: int) -> Run:
    return run._replace(seq_len=tokens) if run.trains else run._replace(prompt_len=tokens)


def _longest(run: Run, card_mib: int) -> int:
    """By interpolation: occupation grows almost linearly with the tokens."""

    def occupied(steps: int) -> int:
        return estimate(_of_length(run, steps * STEP)).occupied_high_mib

    low, high = 1, LONGEST // STEP
    at_low, at_high = occupied(low), occupied(high)
    if at_low > card_mib:
        return 0
    if at_high <= card_mib:
        return LONGEST
    while high - low > 1:
        guess = low + (card_mib - at_low) * (high - low) // (at_high - at_low)
        middle = min(max(guess, low + 1), high - 1)
        at_middle = occupied(middle)
        if at_middle > card_mib:
            high, at_high = middle, at_middle
        else:
            low, at_low = middle, at_middle
            if low + 1 < high and occupied(low + 1) > card_mib:
                break
    return low * STEP
