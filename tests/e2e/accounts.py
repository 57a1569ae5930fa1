"""Real Unix accounts for tests that are root: made for one test, and gone after it."""

import os
import pwd
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gpuqueue.wire.procfs import all_processes


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """`home` has mode 0700; `groups` are all of its group ids, its own first."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: Path

    def shell_environment(self) -> dict[str, str]:
        """What a login shell of this account has in its environment."""
        return {"USER": self.name, "LOGNAME": self.name, "HOME": str(self.home)}


@contextmanager
def accounts(homes: Path, count: int = 2, *, groups: tuple[str, ...] = ()) -> Iterator[list[Account]]:
    """So many new accounts with their homes below `homes`, each with a group of its own name, and in further
    groups that are made for the test if they do not exist."""
    made_groups: list[str] = []
    made: list[str] = []
    try:
        for group in groups:
            if subprocess.run(["getent", "group", group], stdout=subprocess.DEVNULL, check=False).returncode:
                _run("groupadd", group)
                made_groups.append(group)
        found = []
        for _ in range(count):
            name = f"gqt{secrets.token_hex(4)}"
            home = homes / name
            more = ["--groups", ",".join(groups)] if groups else []
            _run(
                "useradd",
                "--no-create-home",
                "--user-group",
                "--shell",
                "/bin/sh",
                "--home-dir",
                str(home),
                *more,
                name,
            )
            made.append(name)
            found.append(_account(name, home))
        yield found
    finally:
        for name in made:
            _end_everything_of(pwd.getpwnam(name).pw_uid)
            _run("userdel", name)
        for group in made_groups:
            _run("groupdel", group)


def _account(name: str, home: Path) -> Account:
    entry = pwd.getpwnam(name)
    home.mkdir()
    os.chown(home, entry.pw_uid, entry.pw_gid)
    home.chmod(0o700)
    groups = os.getgrouplist(name, entry.pw_gid)
    own_first = (entry.pw_gid, *sorted(gid for gid in groups if gid != entry.pw_gid))
    return Account(name=name, uid=entry.pw_uid, gid=entry.pw_gid, groups=own_first, home=home)


def _end_everything_of(uid: int) -> None:
    """An account with processes cannot be removed; that of a failed test may have some. Nor can one with zombies: who
    leaves them unreaped is named."""
    deadline = time.monotonic() + 10
    while left := [process for process in all_processes().values() if _uid(process.pid) == uid]:
        if time.monotonic() > deadline:
            parents = [_command(process.parent) for process in left]
            raise RuntimeError(f"these of uid {uid} do not go: {left}, children of {parents}")
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            if process.parent == os.getpid():  # a backend made here is a subreaper: orphans of a dead daemon come to it
                with suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)
        time.sleep(0.05)


def _uid(pid: int) -> int | None:
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except FileNotFoundError:
        return None


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError as error:
        return str(error)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} -> {done.returncode}: {done.stderr.strip()}")
