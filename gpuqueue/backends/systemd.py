"""A transient systemd service for each attempt: the best containment where systemd runs the machine.

A service and not a scope: a scope inherits the daemon's hardening and dies of its OOM policy. The job gets a
cgroup of its own below the unit's (Delegate), so that killing it spares its shim, and limits bind the job alone.
KillMode=process: when a shim dies, systemd leaves the job alone, and an adopter follows in a unit of its own.
"""

import os
import resource
import shutil
from pathlib import Path

from gpuqueue.wire.rundir import Spec

SLICE = "gpuqueue.slice"
_CGROUP_MOUNT = Path("/sys/fs/cgroup")


def available() -> bool:
    return (
        os.geteuid() == 0
        and Path("/run/systemd/system").is_dir()
        and shutil.which("systemd-run") is not None
        and (_CGROUP_MOUNT / "cgroup.controllers").exists()
    )


def limits_memory() -> bool:
    """Whether there is a memory controller to pass down; on a hybrid layout it is in the tree of cgroup v1."""
    return "memory" in (_CGROUP_MOUNT / "cgroup.controllers").read_text(encoding="ascii").split()


def cgroup_of(unit: str) -> str:
    return str(_CGROUP_MOUNT / SLICE / f"{unit}.service" / "job")


def command(unit: str, spec: Spec, errors: Path, shim: list[str]) -> list[str]:
    """The command line that starts `shim` as the unit; it returns as soon as the unit runs."""
    properties = {
        "KillMode": "process",
        "TimeoutStopSec": "5",  # a shim ends with its job, not with the machine: shutting down need not wait
        "Delegate": "yes",
        "OOMPolicy": "continue",
        "OOMScoreAdjust": "-900",
        "TasksMax": "infinity",
        "StandardError": f"append:{errors}",
    }
    for name in ("NOFILE", "MEMLOCK", "NPROC", "CORE"):  # as the daemon has them, like any child's
        limits = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))
        properties[f"Limit{name}"] = ":".join(
            "infinity" if limit == resource.RLIM_INFINITY else str(limit) for limit in limits
        )
    of_whom = f"--description=gpuqueue job {spec.job_id}, attempt {spec.attempt}, of {spec.user}"
    options = [f"--property={name}={value}" for name, value in properties.items()]
    return ["systemd-run", "--quiet", "--collect", f"--unit={unit}", f"--slice={SLICE}", of_whom, *options, "--", *shim]
