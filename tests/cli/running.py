"""Running `gq` as people do: a process, its output, its exit status."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import gpuqueue
import gq

PYTHONPATH = os.pathsep.join({str(Path(next(iter(room.__path__))).parent) for room in (gpuqueue, gq)})
ENTRY_POINT = "from gq.main import main; main()"  # what an installed `gq` consists of
TIMEOUT_S = 60


class Ran(NamedTuple):
    status: int
    out: str
    err: str


class Gq(NamedTuple):
    directory: Path
    environ: dict[str, str]

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-P", "-c", ENTRY_POINT, *words]  # a script does not look for modules where it runs

    def env(self, **more: str) -> dict[str, str]:
        return self.environ | {"PYTHONPATH": PYTHONPATH} | more

    def __call__(self, *words: str, **more: str) -> Ran:
        done = subprocess.run(
            self.command(*words),
            cwd=self.directory,
            env=self.env(**more),
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=TIMEOUT_S,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def start(self, *words: str, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*words),
            cwd=self.directory,
            env=self.env(**more),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
