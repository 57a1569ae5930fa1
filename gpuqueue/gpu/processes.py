"""Who a process is: the owner, the command and the identity of a pid that holds VRAM (F1)."""

from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]

_LONGEST_COMMAND = 80
# Counted as foreign VRAM, but not worth listing as strangers (M3).
_DISPLAY_SERVERS = frozenset(
    {
        "Xorg",
        "Xwayland",
        "X",
        "gnome-shell",
        "kwin_wayland",
        "kwin_x11",
        "mutter",
        "plasmashell",
        "sway",
        "weston",
        "gdm-x-session",
        "sddm-greeter",
        "gnome-remote-desktop-daemon",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    pid: int
    start_ticks: int  # field 22 of /proc/PID/stat: with the boot, what makes a pid unique
    user: str
    uid: int
    command: str  # one printable line, shortened
    display_server: bool


def identify(pid: int) -> Process | None:
    """Who the process is, or None where no such process can be seen: it has ended, or it lives outside of
    this pid namespace."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            name, uid, user = process.name(), process.uids().effective, process.username()
            words = _command_line(process)
        start_ticks = _start_ticks(pid)
    except (psutil.NoSuchProcess, psutil.AccessDenied, FileNotFoundError, ProcessLookupError):
        return None
    return Process(
        pid=pid,
        start_ticks=start_ticks,
        user=user,
        uid=uid,
        command=_one_line(" ".join(words) or name),
        display_server=name in _DISPLAY_SERVERS,
    )


def _command_line(process: psutil.Process) -> list[str]:
    try:
        words = process.cmdline()
    except (psutil.AccessDenied, psutil.ZombieProcess):
        return []
    return [Path(words[0]).name, *words[1:]] if words else []


def _start_ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19])


def _one_line(text: str) -> str:
    """What a user wrote into an argument must not act on somebody else's terminal."""
    printable = "".join(letter if letter.isprintable() else "?" for letter in text)
    return printable if len(printable) <= _LONGEST_COMMAND else printable[: _LONGEST_COMMAND - 1] + "…"
