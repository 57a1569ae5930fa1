"""Where this daemon may make cgroup v2 directories, and the directory of each attempt."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

_WANTED = ("memory", "cpu")


def find_base() -> Path | None:
    """The directory for those of the attempts, made; None where there is no cgroup v2 to be had or where
    cgroup.kill is missing (kernels before 5.14). Controllers are passed down where the machine has them."""
    mount = _mount()
    if mount is None:
        return None
    above = mount if os.geteuid() == 0 else mount / _own_group()
    base = above / "gpuqueue"
    try:
        base.mkdir(exist_ok=True)
        base.chmod(0o755)  # whatever the daemon's umask: jobs read their limits below
    except OSError:
        return None
    for directory in (above, base):
        for controller in _WANTED:
            with suppress(OSError):  # not there, or the group holds processes: limits are then not enforced
                (directory / "cgroup.subtree_control").write_text(f"+{controller}")
    usable = os.access(base / "cgroup.kill", os.W_OK) and os.access(above / "cgroup.procs", os.W_OK)
    return base if usable else None


def limits_memory(base: Path) -> bool:
    """Whether the directories below `base` have a memory controller."""
    return "memory" in (base / "cgroup.subtree_control").read_text(encoding="ascii").split()


def name_of(state_dir: Path) -> str:
    """Several daemons, simulated ones say, may share a machine."""
    return hashlib.sha256(os.fsencode(state_dir.resolve())).hexdigest()[:8]


def cpu_ms(cgroup: str) -> int | None:
    """All that ever ran there, the dead included; needs no controller. None once the directory is gone."""
    try:
        lines = (Path(cgroup) / "cpu.stat").read_text().splitlines()
    except OSError:
        return None
    values = dict(line.split() for line in lines)
    return int(values["usage_usec"]) // 1000 if "usage_usec" in values else None


def _mount() -> Path | None:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, source = line.partition(" - ")
        if source.startswith("cgroup2 "):
            return Path(fields.split()[4])
    return None


def _own_group() -> str:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            return line[3:].lstrip("/")
    return ""
