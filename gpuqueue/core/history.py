"""What is kept of every attempt that ended, longer than its job: what it was, what it claimed, what it took."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from gpuqueue.wire.jobs import SubmitRequest, TensorParts, TorchPeak
from gpuqueue.wire.states import JobClass, RunState

_SIZE = re.compile(r"(\d+x)?\d+(\.\d+)?[bm]")  # 7b, 0.5b, 8x7b, 560m
_INLINE = re.compile(r"-\w*c")  # sh -c, bash -lc, python -c: what follows is the program


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What makes two runs the same work. `key` stands for a script's text or a command, its arguments and its
    directory; `program` leaves out the arguments, with which the same program may take more or less."""

    key: str
    program: str
    cards: int
    model: str | None = None  # the name that `gq submit` read in the command, where it could
    family: str | None = None  # of that model


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """One attempt that ended. `estimate_mib` is what `gq estimate` said that a card would show, uncorrected."""

    id: int = 0  # given by the store
    job_id: int
    attempt: int
    uid: int
    user: str
    account: str
    job_class: JobClass
    name: str
    command: str
    work: Work
    claim_mib: int
    estimate_mib: int | None
    peak_mib: int | None  # on its fullest card, by its own last words if those say more; None where unknown (M4)
    ran_s: int
    state: RunState
    cause: str | None  # of a failure, in the words of `gq diagnose`
    ended_unix: int
    estimate_parts: TensorParts | None = None
    torch: TorchPeak | None = None  # as a helper inside the job reported it


def work_of(request: SubmitRequest) -> Work:
    """The work that a request asks for. A command names files of its directory, so it is the same work only there; a
    script's text is known, so it is the same program anywhere."""
    if request.script is not None:
        program = _hash(request.script)
    else:
        program = _hash(request.cwd, program_words(request.command))
    return Work(
        key=_hash(request.script, request.command, request.cwd),
        program=program,
        cards=request.gpus if request.vram_mib or request.vram_auto else 0,
        model=request.model,
        family=family(request.model) if request.model else None,
    )


def program_words(command: Sequence[str]) -> list[str]:
    """The words that say what runs, without its arguments: up to `train.py` or `-m package`; else those before the
    first option. All of them where the program itself is one of the words (`sh -c ...`)."""
    if any(_INLINE.fullmatch(word) for word in command[1:2]):
        return list(command)
    for number, word in enumerate(command, start=1):
        if word.endswith((".py", ".sh")):
            return list(command[:number])
        if word == "-m":
            return list(command[: number + 1])
    return list(takewhile(lambda word: not word.startswith("-"), command))


def family(model: str) -> str:
    """Models whose estimates err alike: the name without its repository, up to its size: `qwen2.5` for
    `Qwen/Qwen2.5-7B-Instruct`."""
    words = re.split(r"[-_ ]", model.rstrip("/").rsplit("/", 1)[-1].lower())
    size = next((place for place, word in enumerate(words) if _SIZE.fullmatch(word)), len(words))
    return "-".join(words[:size] or words)


def _hash(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
