"""Every key of the configuration file: its section, the field that it sets, and how its value is read."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpuqueue.config.readers import (
    Reader,
    count,
    days,
    duration,
    file_mode,
    flag,
    member,
    millicores,
    one_of,
    parts,
    path,
    rate,
    size,
    sizes,
    word,
    words,
)
from gpuqueue.core.policy import Mode, Placement


@dataclass(frozen=True, slots=True)
class Key:
    field: str
    read: Reader


SETTINGS: Mapping[str, Mapping[str, Key]] = {
    "daemon": {
        "state_dir": Key("state_dir", path),
        "socket": Key("socket", path),
        "socket_mode": Key("socket_mode", file_mode),
        "socket_group": Key("socket_group", word),
        "admin_group": Key("admin_group", word),
        "shared_logins": Key("shared_logins", words),
        "hide_commands": Key("hide_commands", flag),
        "simulate": Key("simulate_mib", sizes),
        "node_lock": Key("node_lock", path),
        "containment": Key("containment", one_of("auto", "systemd", "cgroup", "session")),
        "strangers": Key("strangers", one_of("report")),
        "sample": Key("sample_s", duration),
    },
    "logs": {
        "cap": Key("log_cap_mib", size),
        "retention": Key("retention_days", days),
    },
}

NOMINAL: Mapping[str, Key] = {"train": Key("train_mib", size), "light": Key("light_mib", size)}

POLICY: Mapping[str, Mapping[str, Key]] = {
    "place": {
        "margin": Key("margin_mib", size),
        "placement": Key("placement", member(Placement)),
        "max_tenants": Key("max_tenants", count(1)),
        "exclusive_accounts": Key("exclusive_accounts", words),
        "pin": Key("pin", one_of("index", "uuid")),
    },
    "idle": {
        "mode": Key("mode", member(Mode)),
        "train_window": Key("train_window_s", duration),
        "light_window": Key("light_window_s", duration),
        "interactive_window": Key("interactive_window_s", duration),
        "gpu": Key("gpu_permille", parts(1000)),
        "cpu": Key("cpu_millicores", millicores),
        "io": Key("io_kib_s", rate),
        "stalled_warn": Key("stalled_warn_s", duration),
        "stalled_stop": Key("stalled_stop_s", duration),
        "exempt_accounts": Key("exempt_accounts", words),
    },
    "overuse": {
        "tolerance": Key("tolerance_mib", size),
        "tolerance_percent": Key("tolerance_percent", parts(100)),
        "tight_free": Key("tight_free_mib", size),
        "grace": Key("grace_s", duration),
    },
    "restart": {
        "backoff_base": Key("backoff_base_s", duration),
        "backoff_max": Key("backoff_max_s", duration),
        "crash_limit": Key("crash_limit", count(1)),
        "per_day": Key("per_day", count(1)),
        "victim_limit": Key("victim_limit", count(0)),
    },
    "limits": {
        "default_time": Key("default_s", duration),
        "max_time": Key("max_s", duration),
        "default_grace": Key("default_grace_s", duration),
        "max_grace": Key("max_grace_s", duration),
        "keep_max": Key("keep_max_s", duration),
        "warn": Key("warn_percent", parts(100)),
    },
}
