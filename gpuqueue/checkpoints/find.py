"""Finds what might be a checkpoint below a directory, and the step that its name claims."""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from gpuqueue.checkpoints.listing import entry_at

MAX_LOOKED_AT = 100_000
MAX_DEPTH = 4
MAX_PEEK = 200

# In the order of trust: of several numbers in a name ("epoch=3-step=1000") the first pattern's counts.
_STEP = re.compile(r"(?:^|[^a-z])(?:global_?-?step|num_?updates|steps?|iter|iterations?)[-_=.]?(\d{1,15})(?!\d)", re.I)
_SAVE = re.compile(r"(?:^|[^a-z])(?:checkpoint|chkpt|ckpt|ck|chk)[-_=.]?(\d{1,15})(?!\d)", re.I)
_EPOCH = re.compile(r"(?:^|[^a-z])(?:epochs?|ep)[-_=.]?(\d{1,15})(?!\d)", re.I)
_FAIRSEQ = re.compile(r"^checkpoint_\d+_(\d{1,15})$")
_WORDED = (_FAIRSEQ, _STEP, _SAVE, _EPOCH)
_BARE = re.compile(r"^(?:.*[-_.]|[a-z]*(?=\d{4}))?(\d{1,15})$", re.IGNORECASE)
# Files of one directory whose names differ in these words only are the parts of one checkpoint.
_ROLE = re.compile(
    r"model|net_?[gd]|generator|discriminator|optimizer|optim|opt|scheduler|ema|scaler|lora|adapter|weights|state|rng",
    re.IGNORECASE,
)
_TENSORFLOW = re.compile(r"^(.+)\.(?:index|data-\d{5}-of-\d{5})$")
_SHARD = re.compile(r"-\d+-of-\d+|_\d+_of_\d+|^(?:rng_state|random_states|zero_pp_rank|mp_rank|__\d+_\d+)", re.I)

# What a save, a download or rsync leaves behind when it is cut short.
TEMPORARY = re.compile(
    r"\.(?:tmp|temp|part|partial|incomplete)(?:$|[-_.\d])|orbax-checkpoint-tmp|^tmp[-_]|~$|^\..+\.[a-z0-9]{6}$",
    re.IGNORECASE,
)
STATE_SUFFIXES = frozenset(
    {".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".npz", ".npy", ".pkl", ".pickle", ".tar", ".distcp"}
    | {".msgpack", ".h5", ".hdf5", ".keras", ".pdparams", ".pdopt", ".eqx", ".nemo"}
)
# A directory whose name says nothing is a checkpoint only if it holds one of these.
_MARKERS = frozenset(
    {
        "_CHECKPOINT_METADATA",
        "_METADATA",
        "commit_success.txt",
        "manifest.ocdbt",
        ".metadata",
        "random_states_0.pkl",
    }
)
# A file without a number may still hold its step inside, if it is named like the one to resume from.
_UNNUMBERED = re.compile(r"last|latest|best|ckpt|checkpoint|\.ckpt$", re.I)
_NEVER_ENTERED = frozenset({"__pycache__", "node_modules", "wandb", "mlruns", "site-packages"})


@dataclass(frozen=True, slots=True)
class Claim:
    """What a name says: a number, what it counts, and the name without its numbers (its series)."""

    step: int
    in_epochs: bool
    series: str
    certain: bool = True  # the name says "step" or the like; else the contents may know better
    worded: bool = True  # the name says what it is; a bare number may be that of a cached sample


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something that may be a checkpoint: a directory (`parts` empty) or files of one directory."""

    path: str
    claim: Claim | None
    parts: list[str] = field(default_factory=list)

    @property
    def is_directory(self) -> bool:
        return not self.parts


@dataclass(slots=True)
class Found:
    """The candidates, in no order, and sentences about what could not be looked at."""

    candidates: list[Candidate]
    troubles: list[tuple[str, str]]


def claim_of(stem: str, strict: bool) -> Claim | None:
    """The step that a name claims. `strict` takes no number without a word such as step or checkpoint."""
    for pattern in _WORDED if strict else (*_WORDED, _BARE):
        if match := pattern.search(stem):
            certain = pattern in (_FAIRSEQ, _STEP)
            worded = pattern is not _BARE or bool(_ROLE.search(stem))
            return Claim(int(match[1]), pattern is _EPOCH, series_of(stem), certain, worded)
    return None


def series_of(stem: str) -> str:
    """The name with its numbers and its part's role struck out: the same for all checkpoints of one kind."""
    return re.sub(r"\d+", "#", _ROLE.sub("*", stem))


def find(directory: str, most: int = MAX_LOOKED_AT) -> Found:
    """Looks level by level, MAX_DEPTH deep, at `most` so many names; never raises."""
    found = Found([], [])
    if _holds_marker(directory):  # saved in place, without a number
        found.candidates.append(Candidate(directory, claim_of(PurePath(directory).name, strict=True)))
    level, looked_at = [directory], 0
    for depth in range(MAX_DEPTH + 1):
        below: list[str] = []
        for here in level:
            try:
                with os.scandir(here) as items:
                    kept = list(itertools.islice(items, most - looked_at))
            except OSError as error:
                found.troubles.append((here, _sentence(error)))
                continue
            below += _sort_out(here, kept, found.candidates)
            looked_at += len(kept)
            if looked_at >= most:
                found.troubles.append((here, f"it holds too much: looking stopped after {most} names"))
                return found
        level = sorted(below) if depth < MAX_DEPTH else []
    return found


def _sentence(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such directory"
    return f"it cannot be read: {error.strerror or error}"


def _sort_out(here: str, items: list[os.DirEntry[str]], out: list[Candidate]) -> list[str]:
    """Adds the candidates among `items` to `out`; returns the directories to look into."""
    below: list[str] = []
    files: dict[str, Candidate] = {}
    tag = _named_by_latest(here, items)
    for item in items:
        name = item.name
        try:
            is_directory = item.is_dir()
            linked = item.is_symlink()
        except OSError:
            continue
        if is_directory:
            claim = claim_of(name, strict=True)
            if claim is not None and not _is_container(item.path, claim):
                out.append(Candidate(item.path, claim))
            elif name == tag or _holds_marker(item.path):
                out.append(Candidate(item.path, claim_of(name, strict=False)))
            elif not linked and not name.startswith(".") and name not in _NEVER_ENTERED:
                below.append(item.path)
        else:
            _sort_out_file(here, name, files)
    out.extend(files.values())
    return below


def _sort_out_file(here: str, name: str, files: dict[str, Candidate]) -> None:
    if match := _TENSORFLOW.match(name):
        stem = match[1]
        key = f"tensorflow {stem}"
        path = f"{here}/{stem}"
    else:
        stem, suffix = PurePath(name).stem, PurePath(name).suffix
        stem = stem.removesuffix(".weights").removesuffix(".pth")  # model-10.weights.h5, step_10.pth.tar
        if (suffix not in STATE_SUFFIXES and not TEMPORARY.search(name)) or _SHARD.search(name):
            return
        key, path = name, f"{here}/{name}"
    claim = claim_of(stem, strict=False)
    if claim is None and not _UNNUMBERED.search(name):
        return
    if claim is not None and not key.startswith("tensorflow "):
        key = _ROLE.sub("*", stem)
    candidate = files.setdefault(key, Candidate(path, claim))
    candidate.parts.append(name)
    if "model" in name and "model" not in PurePath(candidate.path).name:
        files[key] = Candidate(path, claim, candidate.parts)


def _is_container(path: str, claim: Claim) -> bool:
    """A stage such as `step1_sft`: no state of its own, but checkpoints below with numbers of their own."""
    inner = False
    try:
        with os.scandir(path) as items:
            for item in itertools.islice(items, MAX_PEEK):
                if item.is_dir():
                    below = claim_of(item.name, strict=True)
                    inner = inner or (below is not None and below.step != claim.step)
                elif PurePath(item.name).suffix in STATE_SUFFIXES or item.name in _MARKERS:
                    return False
    except OSError:
        return False
    return inner


def _holds_marker(path: str) -> bool:
    return any(os.path.lexists(f"{path}/{marker}") for marker in _MARKERS)


def _named_by_latest(here: str, items: list[os.DirEntry[str]]) -> str | None:
    """The tag that DeepSpeed's `latest` names in this directory."""
    if not any(item.name == "latest" for item in items):
        return None
    return read_line(f"{here}/latest")


def read_line(path: str) -> str | None:
    """The text of a small pointer file (`latest`, `latest_checkpointed_iteration.txt`), stripped."""
    if entry_at(path) is None:
        return None  # a named pipe would be waited for
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            return file.read(4096).strip()
    except OSError:
        return None
