"""Drives LocalBackend with real processes: specifications, waiting to a deadline, reading what came of it."""

import json
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from gpuqueue.backends.local import LocalBackend
from gpuqueue.core.readings import Probe, ProbeState
from gpuqueue.wire.procfs import lives
from gpuqueue.wire.rundir import (
    ALIVE,
    EXIT,
    LOG,
    SPEC,
    USER_DIR,
    Alive,
    ProcessIdentity,
    Spec,
    StopOrder,
    read_record,
)

T = TypeVar("T")
PATH = os.environ["PATH"]


def a_spec(cwd: Path, *argv: str, **changes: Any) -> Spec:
    """A job of one's own that runs `argv`; `changes` are fields of the specification."""
    values: dict[str, Any] = {
        "job_id": 1,
        "attempt": 1,
        "marker": secrets.token_hex(16),
        "user": "me",
        "uid": os.getuid(),
        "gid": os.getgid(),
        "groups": os.getgroups(),
        "argv": list(argv),
        "script": None,
        "script_name": None,
        "cwd": str(cwd),
        "env": {"PATH": PATH, "HOME": str(cwd)},
        "umask": 0o022,
        "log_cap_bytes": 1 << 30,
        "containment": "session",
        "cgroup": None,
        "checkpoint_dir": None,
        "checkpoint_command": None,
        "checkpoint_since": None,
        "checkpoint_exclude": [],
        "resume_fallback": None,
        "resume_latest": False,
        "resume_arg": None,
        "first_attempt": True,
        "notes": [],
        "mem_mib": None,
        "cpus": None,
    }
    return Spec(**(values | changes))


def eventually(ask: Callable[[], T | None], within_s: float = 20.0) -> T:
    """The first true answer; fails with the last one when there is none in time."""
    deadline = time.monotonic() + within_s
    while not (answer := ask()):
        assert time.monotonic() < deadline, f"not within {within_s} s; last answer: {answer!r}"
        time.sleep(0.02)
    return answer


def ended(backend: LocalBackend, spec: Spec, within_s: float = 30.0) -> Probe:
    def ask() -> Probe | None:
        probe = backend.probe(spec.job_id, spec.attempt)
        return probe if probe.state is ProbeState.EXITED else None

    return eventually(ask, within_s)


def running(backend: LocalBackend, spec: Spec) -> Alive:
    """Once the job has been released and its main process is there."""
    return eventually(lambda: read_record(run_dir(backend, spec) / ALIVE, Alive))


def run(backend: LocalBackend, spec: Spec) -> Probe:
    backend.start(spec)
    return ended(backend, spec)


def run_dir(backend: LocalBackend, spec: Spec) -> Path:
    return backend.runs_dir / f"{spec.job_id}.{spec.attempt}"


def log_file(backend: LocalBackend, spec: Spec) -> Path:
    return run_dir(backend, spec) / USER_DIR / LOG


def log(backend: LocalBackend, spec: Spec) -> str:
    file = log_file(backend, spec)
    return file.read_text(errors="replace") if file.exists() else ""


def log_has(backend: LocalBackend, spec: Spec, text: str, within_s: float = 20.0) -> str:
    return eventually(lambda: found if text in (found := log(backend, spec)) else "", within_s)


def order(grace_s: int = 10, signal: str = "SIGTERM", sentence: str = "stopped by a test") -> StopOrder:
    return StopOrder(signal=signal, grace_s=grace_s, sentence=sentence, asked_at=time.time())


def gone(*processes: ProcessIdentity) -> bool:
    return not any(lives(process) for process in processes)


def rewrite(record: Path, **changes: Any) -> None:
    """What a record says is data; changing it is how a reboot looks from here."""
    record.write_text(json.dumps(json.loads(record.read_text()) | changes))


def stop_everything(backend: LocalBackend) -> None:
    """Whatever a failed test left running."""
    for directory in backend.runs_dir.iterdir():
        if (directory / SPEC).exists() and not (directory / EXIT).exists():
            job_id, _, attempt = directory.name.partition(".")
            backend.stop(int(job_id), int(attempt), order(grace_s=0))
            deadline = time.monotonic() + 20
            while backend.probe(int(job_id), int(attempt)).state is ProbeState.ALIVE:
                assert time.monotonic() < deadline, f"{directory} does not stop"
                time.sleep(0.05)
    backend.close()


def checkpoint(directory: Path, step: int, *, complete: bool = True, age_s: float = 0) -> Path:
    """As Hugging Face's Trainer leaves one; a half-written one lacks the file that is written last."""
    made = directory / f"checkpoint-{step}"
    made.mkdir(parents=True)
    (made / "config.json").write_text("{}")
    write_safetensors(made / "model.safetensors")
    if complete:
        (made / "trainer_state.json").write_text(f'{{"global_step": {step}}}')
    then = time.time() - age_s
    for path in (*made.iterdir(), made):
        os.utime(path, (then, then))
    return made


def write_safetensors(path: Path) -> None:
    header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 4)
