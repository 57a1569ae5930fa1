"""DeepSpeed: a directory per tag, and beside it `latest`, which names the tag once all ranks have saved.

`latest` is not written atomically, and a power loss has left files of no bytes behind.
"""

from __future__ import annotations

import re
from pathlib import PurePath

from gpuqueue.checkpoints.find import claim_of, read_line
from gpuqueue.checkpoints.layouts import content
from gpuqueue.checkpoints.listing import Files, entry_at

NAME = "deepspeed"
_SHARD = re.compile(r"^(.*?)zero_pp_rank_(\d+)_mp_rank_(\d+)(?:_\d+)?_optim_states\.pt$")


def claims(files: Files) -> bool:
    return not files.is_parts and any(name.endswith(("_model_states.pt", "_optim_states.pt")) for name in files)


def completed_at(files: Files) -> float | None:
    pointer = PurePath(files.root).parent / "latest"
    if read_line(str(pointer)) == PurePath(files.root).name and (entry := entry_at(str(pointer))):
        return max(entry.mtime, files.newest_mtime)
    return files.newest_mtime


def fault(files: Files, step: int | None) -> str | None:
    tag = PurePath(files.root)
    latest = read_line(str(tag.parent / "latest"))
    if not latest:
        return "`latest` beside it is missing or empty: the save was not finished"
    named = claim_of(latest, strict=False)
    if latest != tag.name and step is not None and (named is None or named.step < step):
        return f"`latest` still names {latest}: the save was not finished"
    return ranks_fault(files)


def tag_missing(files: Files) -> str | None:
    """For a checkpoint that holds DeepSpeed's directory within: `latest` is there and names what is there."""
    tags = {name.split("/")[0] for name in files if name.startswith("global_step")}
    if tags and ("latest" not in files or read_line(files["latest"].path) not in tags):
        return "`latest` is missing or does not name a tag that is there"
    return None


def ranks_fault(files: Files) -> str | None:
    """Every rank's optimizer shard is there: the model's file says how many ranks there were."""
    shards: dict[str, set[int]] = {}
    for name in files:
        if match := _SHARD.match(name):
            shards.setdefault(f"{match[1]}#{match[3]}", set()).add(int(match[2]))
    if not shards:
        return None
    ranks = _data_parallel_ranks(files) or max(max(found) for found in shards.values()) + 1
    for where, found in sorted(shards.items()):
        prefix, model_rank = where.split("#")
        for rank in range(ranks):
            if rank not in found:
                return f"{prefix}zero_pp_rank_{rank}_mp_rank_{model_rank}_optim_states.pt is missing"
    if not any(name.endswith("model_states.pt") for name in files):
        return "no file holds the model's states"
    return None


def _data_parallel_ranks(files: Files) -> int | None:
    for name in files:
        if name.endswith("_model_states.pt"):
            return content.counts(files[name]).get("dp_world_size")
    return None
