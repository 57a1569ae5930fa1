"""What a command line says about memory: the model that it names, and where it is a training that we can read, its
settings. Nothing is run; what is not a training in known words is not guessed at."""

import re
import shlex
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from gpuqueue.estimate.read_python import ARGUMENTS, read_python
from gpuqueue.estimate.read_training import read_document, read_training
from gpuqueue.estimate.reading import Reading, take_all
from gpuqueue.estimate.settings import TRAINER

MODEL_OPTIONS = (
    "model_name_or_path",
    "pretrained_model_name_or_path",
    "base_model",
    "model_id",
    "model_name",
    "model_path",
    "model",
)
TRAINING_OPTIONS = ("per_device_train_batch_size", "finetuning_type")  # nobody else calls anything so
CONFIGS = (".yaml", ".yml")
MAX_FILE_BYTES = 1 << 20

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


@dataclass(frozen=True, slots=True)
class Command:
    """`reading` is None where the command is no training that can be read: then nothing can be estimated."""

    model: str | None = None
    reading: Reading | None = None


def read_command(words: list[str], directory: Path) -> Command:
    """What this command, started in that directory, says."""
    options = _options(words)
    named = next((model for name in MODEL_OPTIONS if (model := _model(options.get(name)))), None)
    reading = _from_files(words, directory)
    if reading is None:
        return Command(named, _from_options(options, named))
    take_all(reading, options, TRAINER, "--")  # the command line wins over the file
    return Command(named or reading.model, reading)


def _model(value: Any) -> str | None:
    """A name; not a switch, nor a variable that nothing here sets."""
    return value if isinstance(value, str) and "$" not in value else None


def read_shell(text: str, arguments: list[str], directory: Path) -> Command:
    """The first command of a shell script that says something. Plain assignments are followed, and "$@"."""
    values: dict[str, str] = {}
    best = Command()
    for line in text.replace("\\\n", " ").splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue
        alone = words[1:] if words[:1] == ["export"] else words
        if len(alone) == 1 and (assigned := _ASSIGNMENT.fullmatch(alone[0])):
            values[assigned[1]] = assigned[2]
            continue
        found = read_command(_expanded(words, values, arguments), directory)
        if found.reading is not None:
            return found
        best = best if best.model else found
    return best


def _expanded(words: list[str], values: dict[str, str], arguments: list[str]) -> list[str]:
    found: list[str] = []
    for word in words:
        if word in ("$@", "$*"):
            found += arguments
        else:
            found.append(_VARIABLE.sub(lambda name: values.get(name[1] or name[2], name[0]), word))
    return found


def _options(words: list[str]) -> dict[str, Any]:
    """`--name value`, `--name=value` and a bare `--name` as settings; the last of a name wins."""
    found: dict[str, Any] = {}
    for word, after in pairwise([*words, ""]):
        if not word.startswith("--") or len(word) < 3:
            continue
        name, equals, value = word[2:].partition("=")
        if not equals:
            value = "true" if not after or after.startswith("--") else after
        found[name.replace("-", "_")] = _value(value)
    return found


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _from_files(words: list[str], directory: Path) -> Reading | None:
    """The configuration or the training program among the words."""
    for word in words:
        path = directory / word.rpartition("=")[2]
        if path.suffix not in (*CONFIGS, ".py") or not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
            continue
        if path.suffix in CONFIGS:
            reading = read_training(path)
            if reading.model is not None:  # else it says only how a run is spread
                return reading
        elif (reading_of := read_trainer(path.read_text(encoding="utf-8"), path)) is not None:
            return reading_of
    return None


def read_trainer(text: str, path: Path) -> Reading | None:
    """A Python program that trains with Trainer or TRL; None for every other."""
    return read_python(text, path) if any(name in text for name in ARGUMENTS) else None


def _from_options(options: dict[str, Any], model: str | None) -> Reading | None:
    if model is None or not any(name in options for name in TRAINING_OPTIONS):
        return None
    return read_document(options | {"model_name_or_path": model}, Path("command"))
