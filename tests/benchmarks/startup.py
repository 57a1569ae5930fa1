"""How fast `gq` answers: its whole time, as a ratio to `python -c pass` on the same machine, in the same run.

    python tests/benchmarks/startup.py [--runs N]

The two are run in turn, so that a busy moment hits both; the best of each counts, since noise only ever adds.
Bytecode is compiled first, as an installation does: where PYTHONDONTWRITEBYTECODE is set, an editable one never would.
"""

import argparse
import compileall
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.e2e.node import Node

ROOT = Path(__file__).resolve().parents[2]
PASS = [sys.executable, "-c", "pass"]
VERBS = (["status"], ["status", "--json"], ["why", "1"], ["estimate", "Qwen2.5-7B"], ["--help"])


def seconds(command: list[str], env: dict[str, str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    for package in ("gpuqueue", "cli"):
        compileall.compile_dir(ROOT / package, quiet=1)
    with tempfile.TemporaryDirectory() as directory:
        node = Node(Path(directory)).start()
        try:
            node.wait(node.submit("--vram", "0", "--", "true"))
            for verb in VERBS:
                command = [sys.executable, "-m", "gq", *verb]
                times = [(seconds(PASS, node.env), seconds(command, node.env)) for _ in range(runs)]
                plain, ours = (min(column) for column in zip(*times, strict=True))
                print(f"gq {' '.join(verb):20} {ours * 1000:6.1f} ms = {ours / plain:4.1f} x {plain * 1000:.1f} ms")
        finally:
            node.close()


if __name__ == "__main__":
    main()
