"""Who asks: the uid that the kernel reports for the socket, and what that uid may do (rules A1-A3)."""

import grp
import pwd
from collections.abc import Sequence
from dataclasses import dataclass

from gpuqueue.core.model import Job
from gpuqueue.wire.errors import ErrorCode, GpuqueueError


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The other end of a connection. `groups` is None where the kernel does not say (no SO_PEERGROUPS)."""

    uid: int
    gid: int
    pid: int
    groups: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    uid: int
    gid: int
    user: str
    groups: tuple[int, ...]
    admin: bool

    def may_touch(self, job: Job) -> bool:
        return self.admin or job.uid == self.uid


def identify(peer: Peer, admin_group: str, daemon_uid: int) -> Caller:
    """The caller behind a peer. Root, the daemon's own login and members of the admin group administer (A2)."""
    try:
        user = pwd.getpwuid(peer.uid).pw_name
    except KeyError:
        user = nameless(peer.uid)
    groups = peer.groups if peer.groups is not None else database_groups(user, peer.gid)
    return Caller(
        uid=peer.uid,
        gid=peer.gid,
        user=user,
        groups=groups,
        admin=peer.uid in (0, daemon_uid) or admin_gid(admin_group) in (*groups, peer.gid),
    )


def nameless(uid: int) -> str:
    """What a user is called whom the user database does not know."""
    return f"uid{uid}"


def admin_gid(admin_group: str) -> int | None:
    try:
        return grp.getgrnam(admin_group).gr_gid
    except KeyError:
        return None


def database_groups(user: str, gid: int) -> tuple[int, ...]:
    """Supplementary groups by the group database; () for a user it does not know."""
    import os

    try:
        return tuple(os.getgrouplist(user, gid))
    except (KeyError, OSError):
        return ()


def group_names(gids: Sequence[int]) -> list[str]:
    names = []
    for gid in gids:
        try:
            names.append(grp.getgrgid(gid).gr_name)
        except KeyError:
            continue
    return names


def named_user(name: str) -> Caller:
    """The account of an existing Unix user, for an admin who acts for somebody (`--as`). Never an admin."""
    try:
        entry = pwd.getpwnam(name)
    except (KeyError, ValueError):  # ValueError: no user has such a name, for example one with a NUL
        raise GpuqueueError(ErrorCode.INVALID, f"no user {name!r} on this machine", "see `getent passwd`") from None
    return Caller(
        uid=entry.pw_uid,
        gid=entry.pw_gid,
        user=entry.pw_name,
        groups=database_groups(entry.pw_name, entry.pw_gid),
        admin=False,
    )
