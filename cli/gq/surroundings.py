"""What the submitting shell has around a job: environment, directory, umask, the script's text, the command."""

import os
from pathlib import Path
from shutil import which

from gpuqueue.wire.errors import ErrorCode, GpuqueueError
from gq.exits import usage

MAX_SCRIPT_BYTES = 4 * 1024 * 1024

# What gpuqueue put into an outer job's environment (J2). A job that is submitted from inside a job has its own:
# with the outer one's marker it would be taken for a child of it, and stopped with it.
OUTER_JOB = frozenset(
    {
        "GQ_ATTEMPT",
        "GQ_ATTEMPT_MARKER",
        "GQ_CAP_ENV",
        "GQ_CAP_MIB",
        "GQ_CHECKPOINT_DIR",
        "GQ_JOB_ID",
        "GQ_REPORT",
        "GQ_RESTART_COUNT",
        "GQ_RESUME_FROM",
        "GQ_SUBMIT_DIR",
        "GQ_VRAM_MIB",
    }
)


def environment() -> dict[str, str]:
    """The shell's environment for the job (J1). Bytes that are not UTF-8 are kept as Python keeps them, as
    lone surrogates (PEP 383), which JSON carries as escapes and the shim turns back into the same bytes."""
    outer = OUTER_JOB.union(os.environ.get("GQ_CAP_ENV", "").split())  # an outer job's cap is not this one's
    return {name: value for name, value in os.environ.items() if name not in outer}


def directory() -> str:
    """The current directory. Raises a usage error where it is gone or has no name in UTF-8."""
    try:
        return utf8(os.getcwd(), "the current directory")  # noqa: PTH109 - a str is what travels
    except FileNotFoundError as error:
        raise usage("the current directory was deleted", "cd to one that exists, and submit again") from error


def umask() -> int:
    """The shell's umask."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def utf8(text: str, what: str) -> str:
    """The text, if it is UTF-8: it is shown to others. Raises a usage error that says what it is."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise usage(f"{what} is not UTF-8: {os.fsencode(text)!r}") from error
    return text


def script_text(path: str) -> str:
    """The script's text as it is now (J1, J4). Raises a usage error for what cannot be a script."""
    file = Path(path)
    as_command = f"to run a command, put -- before it: gq submit … -- {path}"
    try:
        if file.is_dir():
            raise usage(f"{path} is a directory, not a script")
        with file.open("rb") as stream:
            content = stream.read(MAX_SCRIPT_BYTES + 1)
    except FileNotFoundError as error:
        raise usage(f"no such script: {path}", as_command) from error
    except OSError as error:
        raise usage(f"cannot read the script {path}: {error.strerror}") from error
    if len(content) > MAX_SCRIPT_BYTES:
        message = f"{path} is larger than a script may be (4 MiB)"
        raise GpuqueueError(ErrorCode.TOO_LARGE, message, as_command)
    if b"\0" in content:
        raise usage(f"{path} is a binary, not a script", f"gq submit … -- {_runnable(path)}")
    if not content.strip():
        raise usage(f"{path} is empty")
    return _checked(content, path)


def _checked(content: bytes, path: str) -> str:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise usage(f"{path}, line {line}: not UTF-8", f"gq submit … -- bash {path} runs it as it is") from error
    first = text.partition("\n")[0]
    if first.startswith("#!") and first.endswith("\r"):
        raise usage(f"{path} has Windows line ends: the system looks for a program {first[2:]!r}", f"dos2unix {path}")
    return text


def checked_command(words: list[str]) -> list[str]:
    """The command, if there is such a program. Raises a usage error where there is none."""
    for number, word in enumerate(words):
        utf8(word, f"word {number + 1} of the command")
    program = words[0]
    if which(program) is not None:
        return words
    if "/" not in program:
        hint = f"gq submit … -- ./{program}" if Path(program).is_file() else "the PATH of this shell is what counts"
        raise usage(f"no such command: {program}", hint)
    if not Path(program).exists():
        raise usage(f"no such command: {program} does not exist")
    raise usage(f"{program} is not executable", f"chmod +x {program}")


def _runnable(path: str) -> str:
    return path if "/" in path else f"./{path}"
