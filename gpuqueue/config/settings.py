"""What one daemon is told: the policy, and where and how it serves. Made by `load`, or with the defaults."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from gpuqueue.core.policy import Policy


def default_state_dir() -> Path:
    """The system's for root, else one's own."""
    if os.geteuid() == 0:
        return Path("/var/lib/gpuqueue")
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "gpuqueue"


def default_socket() -> Path:
    """Where `gq` looks when GQ_SOCKET is not set."""
    if os.geteuid() == 0:
        return Path("/run/gpuqueue/gpuqueued.sock")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "gpuqueue/gpuqueued.sock" if runtime else default_state_dir() / "gpuqueued.sock"


def default_socket_mode() -> int:
    """Everybody may ask root's daemon, who asks is known from the kernel (A1); any other serves its own login (A3)."""
    return 0o666 if os.geteuid() == 0 else 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    policy: Policy = field(default_factory=Policy)
    state_dir: Path = field(default_factory=default_state_dir)
    socket: Path = field(default_factory=default_socket)
    socket_mode: int = field(default_factory=default_socket_mode)
    socket_group: str | None = None  # None: the daemon's own
    admin_group: str = "gpuqueue-admin"  # A2
    shared_logins: frozenset[str] = frozenset()  # A3
    hide_commands: bool = False  # A2
    simulate_mib: tuple[int, ...] = ()  # a simulated card each; empty: the real ones
    node_lock: Path | None = None  # a file held while real cards are served; None: the node's own name
    containment: str = "auto"  # or "systemd", "cgroup", "session"
    strangers: str = "report"  # F1
    sample_s: int = 5  # the longest wait between two looks at the node; events wake the daemon at once
    log_cap_mib: int = 1024  # J3
    retention_days: int = 30  # of ended jobs and their logs
