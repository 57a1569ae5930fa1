"""gq estimate: how much VRAM a run will need, before it runs. Needs neither daemon nor network."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from gq import here
from gq.arguments import Between, Size

if TYPE_CHECKING:
    from pathlib import Path

    from gpuqueue.estimate.reading import Reading
    from gpuqueue.estimate.run import Run
    from gpuqueue.estimate.shapes import ModelShape

DEFAULT_CARD_MIB = 32607
COUNT = click.IntRange(1)
BUDGET_OPTIONS = ("cards", "context_mib", "budget", "as_json")


def _choice(*names: str) -> click.Choice[str]:
    return click.Choice(names, case_sensitive=False)


@click.command(name="estimate")
@click.argument("model", required=False)
@click.option(
    "--from",
    "source",
    metavar="FILE",
    help="Read train.py, an Axolotl, LLaMA-Factory or TRL YAML, or an accelerate config; nothing is run.",
)
@click.option("--method", type=_choice("full", "lora", "qlora", "inference", "vllm"))
@click.option(
    "--weights",
    type=_choice("fp32", "bf16", "fp16", "int8", "nf4", "nf4-dq", "gptq4", "gptq8", "awq", "fp8", "mxfp4"),
    help="How the base model is stored.",
)
@click.option("--compute", type=_choice("fp32", "bf16", "fp16"), help="What is computed in.")
@click.option("--autocast/--no-autocast", default=None, help="Trainer's bf16=True; off: all in the weights' type.")
@click.option("-r", "--rank", type=COUNT, metavar="N", help="LoRA rank.")
@click.option("--targets", metavar="NAMES", help="LoRA targets, with commas; all-linear.")
@click.option("--modules-to-save", metavar="NAMES", help="Modules trained in full beside LoRA.")
@click.option("--dropout/--no-dropout", default=None, help="LoRA dropout above 0.")
@click.option("--kbit", type=_choice("peft", "trl", "none"), help="Who prepared a 4- or 8-bit model for training.")
@click.option(
    "--optimizer",
    metavar="NAME",
    help="adamw adamw_fused adamw_8bit paged_adamw_8bit adafactor lion muon sgd, or Trainer's name of one.",
)
@click.option("-b", "--batch", type=COUNT, metavar="N", help="Rows a card and step.")
@click.option("-s", "--seq", "seq_len", type=COUNT, metavar="N", help="Tokens a row; GRPO: of the prompt.")
@click.option("--accumulation", "grad_accumulation", type=COUNT, metavar="N", help="Gradient accumulation steps.")
@click.option("--checkpointing/--no-checkpointing", default=None, help="Gradient checkpointing.")
@click.option("--attention", type=_choice("flash", "sdpa", "eager"))
@click.option("--loss", type=_choice("eager", "fused", "chunked", "linear"), help="linear: Liger, Cut Cross Entropy.")
@click.option("--liger", is_flag=True, help="All of Liger's kernels.")
@click.option("--compile", "compiled", is_flag=True, default=None, help="torch.compile.")
@click.option("--expandable-segments", is_flag=True, default=None, help="PYTORCH_ALLOC_CONF=expandable_segments:True")
@click.option("--ranks", type=COUNT, metavar="N", help="Cards that share the work.")
@click.option("--zero", type=click.IntRange(0, 3), metavar="STAGE", help="DeepSpeed ZeRO stage; 3 for FSDP full shard.")
@click.option("--offload-optimizer", is_flag=True, default=None)
@click.option("--trainer", type=_choice("sft", "dpo", "grpo", "orpo", "kto", "reward"))
@click.option("--completion", "completion_len", type=COUNT, metavar="N", help="GRPO: tokens generated a prompt.")
@click.option("--eval-batch", type=COUNT, metavar="N", help="Rows of an evaluation step.")
@click.option(
    "--prompt",
    "prompt_len",
    type=COUNT,
    metavar="N",
    help="Inference: tokens of the prompt [2048 without --new-tokens].",
)
@click.option("--new-tokens", type=COUNT, metavar="N", help="Inference: tokens generated.")
@click.option("--sequences", type=COUNT, metavar="N", help="Inference: sequences at a time.")
@click.option("--kv", type=_choice("bf16", "fp8"), help="Type of the KV cache.")
@click.option(
    "--utilization",
    "gpu_memory_utilization",
    type=Between(0, 1),
    help="vLLM: its share of the card [0.9]; GRPO: that of a vLLM beside the trainer.",
)
@click.option(
    "--context", "context_mib", type=Size(), help="CUDA context, kernels included [as gpuqueued init measured]."
)
@click.option("--card", "cards", type=Size(), multiple=True, help="A card's memory, as 32607M or 24G; may be repeated.")
@click.option("--quota", type=Size(), help="Your quota.")
@click.option("--explain", is_flag=True, help="Formula and source of every line.")
@click.option("--budget", is_flag=True, help="What a card can hold: sizes by methods.")
@click.option("--json", "as_json", is_flag=True)
def command(
    model: str | None,
    source: str | None,
    cards: tuple[int, ...],
    quota: int | None,
    explain: bool,
    budget: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """How much VRAM will MODEL take: a built-in name, a directory with config.json, or a .gguf file.

    needed is a lower bound; will occupy is what the card will show as used.
    """
    from gq.estimate_page import print_budget, print_estimate

    typed = _typed(click.get_current_context())
    if budget:
        _only_of_budget(typed, cards)
    node = here.node()
    if node is not None:
        cards, quota = cards or node.cards_mib, quota or node.quota_mib
    options |= _context(options["context_mib"], node)
    try:
        if budget:
            context = {
                name: options[name] for name in ("context_mib", "context_source") if options.get(name) is not None
            }
            print_budget(max(cards, default=DEFAULT_CARD_MIB), context, as_json)
            return
        reading = _read(source) if source else None
        run = _run(model, reading, options, cards)
        ignored = _ignored(run, reading, typed)
        calibration = here.calibration(run.shape.name) if node is not None else None
        print_estimate(run, reading, ignored, cards, quota, calibration, explain, as_json)
    except ValueError as error:
        raise click.UsageError(_said(str(error), typed, source)) from error


def _said(error: str, typed: dict[str, str], source: str | None) -> str:
    """An error that begins with a field of a Run, in the words of who set it: an option, or the file."""
    from gpuqueue.estimate.run import Run

    field, blank, rest = error.partition(" ")
    if field in typed:
        return typed[field] + blank + rest
    return f"{source}: {error}" if source and field in Run._fields else error


def _typed(context: click.Context) -> dict[str, str]:
    """Parameter -> the option as it can be typed, of those that stand on the command line."""
    given = click.core.ParameterSource.COMMANDLINE
    return {
        each.name: max(each.opts, key=len) if isinstance(each, click.Option) else each.human_readable_name
        for each in context.command.params
        if each.name and context.get_parameter_source(each.name) is given
    }


def _only_of_budget(typed: dict[str, str], cards: tuple[int, ...]) -> None:
    others = [option for name, option in typed.items() if name not in BUDGET_OPTIONS]
    if others:
        raise click.UsageError(f"--budget has models, methods and lengths of its own: leave out {', '.join(others)}")
    if "cards" in typed and len(cards) > 1:
        raise click.UsageError("--budget is of one card: give --card once")


def _ignored(run: Run, reading: Reading | None, typed: dict[str, str]) -> list[str]:
    """What the file says and this run has no use for. Raises UsageError where an option is without effect."""
    from gpuqueue.estimate.choose import unused

    for name, owner in unused(run, typed):
        raise click.UsageError(f"{typed[name]} has no effect on {_kind(run)}: it belongs to {owner}")
    if run.zero and run.ranks == 1 and "zero" in typed and "ranks" not in typed:
        raise click.UsageError("--zero shards over several cards: say how many with --ranks (1: DeepSpeed on one card)")
    read = reading.fields if reading else {}
    return [f"{name}: it belongs to {owner}, and this is {_kind(run)}" for name, owner in unused(run, read)]


def _kind(run: Run) -> str:
    return f"{run.method} ({run.trainer})" if run.trains and run.trainer != "sft" else run.method


def _context(given_mib: int | None, node: here.Node | None) -> dict[str, Any]:
    """The fields of a Run that tell of the CUDA context."""
    if given_mib is not None:
        return {"context_mib": given_mib, "context_source": "given"}
    return here.context(node.context_mib if node is not None else None)


def _read(source: str) -> Reading:
    from pathlib import Path

    from gpuqueue.estimate.read_training import read_training

    return read_training(Path(source))


def _run(model: str | None, reading: Reading | None, options: dict[str, Any], cards: tuple[int, ...]) -> Run:
    """The Run of the command line over the file over the model's own files over the defaults."""
    name = model or (reading.model if reading else None)
    if name is None:
        raise click.UsageError("say which model: gq estimate Qwen2.5-7B, or a directory, or --from FILE that names it")
    return run_of(name, (reading.fields if reading else {}) | _given(options), cards)


def run_of(model: str, chosen: dict[str, Any], cards: tuple[int, ...] = ()) -> Run:
    """The run of a model by name or path with what was chosen, over what its own files say. Raises ValueError where
    there is no such model."""
    from gpuqueue.estimate.choose import choose

    shape, stored = _shape(model, settled="weights" in chosen)
    if cards and chosen.get("card_mib") is None:
        chosen = chosen | {"card_mib": max(cards)}
    return choose(shape, chosen, stored)


def _shape(name: str, settled: bool) -> tuple[ModelShape, dict[str, Any]]:
    # os.path, since importing pathlib takes a third of an interpreter's start
    if os.path.isdir(name) or name.endswith(".gguf"):  # noqa: PTH112
        from pathlib import Path

        return _local_shape(Path(name))
    from gpuqueue.estimate.catalogue import find_stored

    return find_stored(name, settled)


def _local_shape(path: Path) -> tuple[ModelShape, dict[str, Any]]:
    if path.suffix == ".gguf":
        from gpuqueue.estimate.read_gguf import read_gguf

        shape, fields = read_gguf(path)
        return shape, fields | {"method": "inference"}
    from gpuqueue.estimate.read_model import read_directory

    return read_directory(path)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    fields = {name: value for name, value in options.items() if value is not None}
    for name in ("targets", "modules_to_save"):
        if name in fields:
            fields[name] = tuple(part.strip() for part in fields[name].split(","))
    if fields.pop("liger"):
        fields |= {"loss": "linear", "fused_norms": True, "fused_mlp": True}
    if "optimizer" in fields:
        fields["optimizer"] = _optimizer(fields["optimizer"])
    if "kv" in fields:
        fields["kv_bytes"] = {"bf16": 2, "fp8": 1}[fields.pop("kv")]
    return fields


def _optimizer(name: str) -> str:
    from gpuqueue.estimate.run import OPTIMIZERS as OURS
    from gpuqueue.estimate.settings import OPTIMIZERS, optimizer

    known = name if name in OURS else optimizer(name).get("optimizer")
    if known is None:
        names = ", ".join(dict.fromkeys((*OURS, *OPTIMIZERS)))
        raise click.UsageError(f"--optimizer {name!r} is not one whose memory is known: {names}")
    return str(known)
