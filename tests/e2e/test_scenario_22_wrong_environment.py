"""Scenario 22, the wrong environment (J1, P3): a job is submitted from a shell with an activated venv, in some
directory, with some umask, and with a CUDA_VISIBLE_DEVICES of its own. The job has that venv, that directory, that
umask and the rest of that environment, nothing of the daemon's, and the card that the queue gave it; its log says
so once."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.node import Node

pytestmark = pytest.mark.e2e

LOOK = """\
#!/usr/bin/env python
import json, os, sys
import neighbour
mask = os.umask(0)
os.umask(mask)
open("made-by-the-job", "w").close()
print(json.dumps({"prefix": sys.prefix, "cwd": os.getcwd(), "umask": mask, "neighbour": neighbour.__file__,
                  "environment": dict(os.environ)}))
sys.exit(int(os.environ["GQ_ATTEMPT"]) < 2)
"""
PINNING = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES")


def test_a_job_has_its_shells_venv_directory_umask_and_environment_and_the_queues_card(
    make_node: Callable[..., Node], open_path: Path
) -> None:
    config = '[daemon]\nsample = "1s"\n[restart]\nbackoff_base = "1s"\n'
    node = make_node(cards="8G,8G", config=config, env={"ONLY_THE_DAEMONS": "1"})
    node.start()
    del node.env["ONLY_THE_DAEMONS"]
    venv = open_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    shell = {
        "VIRTUAL_ENV": str(venv),
        "PATH": f"{venv}/bin{os.pathsep}{os.environ['PATH']}",
        "CUDA_VISIBLE_DEVICES": "7",
        "CUDA_DEVICE_ORDER": "FASTEST_FIRST",
        "LC_MESSAGES": "tlh",
        "TWO_LINES": "one\ntwo",
        "PYTHONUNBUFFERED": "yes",
    }
    there = node.work / "a directory with spaces, ünïcode"
    there.mkdir()
    (there / "look.py").write_text(LOOK)
    (there / "neighbour.py").touch()

    job = node.submit("--vram", "5G", "--gpu", "1", "look.py", env=shell, cwd=there, umask=0o027)
    assert node.wait(job) == 0, node.why(job)
    first, second = (node.gq("logs", str(job), "--attempt", str(n)).stdout.splitlines() for n in (1, 2))
    for log in (first, second):
        found = json.loads(next(line for line in log if line.startswith("{")))
        assert found["prefix"] == str(venv)
        assert found["cwd"] == str(there)
        assert found["umask"] == 0o027
        assert Path(found["neighbour"]).parent == there
        environment = found["environment"]
        assert {name: environment[name] for name in shell if name not in PINNING} == {
            name: value for name, value in shell.items() if name not in PINNING
        }
        assert [environment[name] for name in PINNING[:2]] == ["1", "PCI_BUS_ID"]
        assert environment["NVIDIA_VISIBLE_DEVICES"].startswith("SIM-0001")
        assert environment["GQ_SUBMIT_DIR"] == str(there)
        assert "ONLY_THE_DAEMONS" not in environment
    assert stat.S_IMODE((there / "made-by-the-job").stat().st_mode) == 0o640
    for name in PINNING[:2]:
        said = [line for line in first if line.startswith("gq: ") and name in line]
        assert len(said) == 1
        assert f"{name}={shell[name]} of your shell is overridden" in said[0]
    assert not any("overridden" in line for line in second)


def test_the_submitting_environment_is_in_no_view(node: Node) -> None:
    secret = "only-the-job-may-know-this"
    job = node.submit("--vram", "1G", "--", "sh", "-c", "echo $TOKEN", env={"TOKEN": secret})
    assert node.wait(job) == 0
    assert secret in node.logs(job)
    for words in (
        ["show", str(job)],
        ["show", str(job), "--json"],
        ["status", "--all", "--json"],
        ["events", "--json"],
    ):
        assert secret not in node.gq(*words).stdout
    for name in ("gpuqueue.db", "gpuqueue.db-wal", "runs/1.1/spec.json"):
        assert stat.S_IMODE((node.state / name).stat().st_mode) & 0o077 == 0
