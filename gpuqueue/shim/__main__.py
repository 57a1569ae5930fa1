"""`python -m gpuqueue.shim [--adopt] RUN_DIRECTORY`, or this file by its path: then it finds its package itself,
so that isolated mode without site-packages (-I -S: fast, and deaf to the environment) is enough anywhere."""

import sys
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gpuqueue.shim.adopt import adopt_attempt
from gpuqueue.shim.start import Refused, run_attempt


def main(arguments: list[str]) -> str | int:
    try:
        match arguments:
            case ["--adopt", directory]:
                adopt_attempt(Path(directory).resolve())
            case [directory]:
                run_attempt(Path(directory).resolve())
            case _:
                return "usage: python -m gpuqueue.shim [--adopt] RUN_DIRECTORY"
    except Refused as error:
        return f"gpuqueue shim: {arguments[-1]}: {error}"
    return 0


sys.exit(main(sys.argv[1:]))
