"""From the tensors' peak to what the process needs and what the card will show as used."""

from dataclasses import dataclass

from gpuqueue.estimate.run import Run

SOURCE = "measured: fms-acceleration on A100-80GB (nvidia-smi), fitcheck-llm on T4 (reserved + context)"


@dataclass(frozen=True, slots=True)
class Slack:
    """Cached-but-free memory as a factor on the tensors' peak: usual, and where 90 % of runs lie."""

    low: float
    usual: float
    high: float


# Blocks of the vocabulary's size come and go beside layer-sized ones, and the cache keeps both kinds.
LINEAR_LOSS = Slack(1.04, 1.10, 1.16)
EAGER_LOSS = Slack(1.04, 1.17, 1.40)
FUSED_LOSS = Slack(1.04, 1.28, 1.61)
EAGER_ATTENTION = Slack(1.05, 1.22, 1.48)
EXPANDABLE = Slack(1.02, 1.06, 1.12)
INFERENCE = Slack(1.01, 1.04, 1.12)


def slack(run: Run) -> Slack:
    """The factors for this kind of run; the sources are in SOURCE."""
    if not run.trains:
        return INFERENCE
    if run.expandable_segments:
        return EXPANDABLE
    if run.attention == "eager":
        return EAGER_ATTENTION
    return {"linear": LINEAR_LOSS, "chunked": LINEAR_LOSS, "fused": FUSED_LOSS}.get(run.loss, EAGER_LOSS)
