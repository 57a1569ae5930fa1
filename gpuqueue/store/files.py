"""The database as a file: where it may live, who may read it, whether it is whole, and copies of it.

Nothing here opens the file except through SQLite once a connection exists: closing any other descriptor of it
would drop SQLite's locks.
"""

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import Engine

from gpuqueue.store.faults import in_plain_words, restore_hint, unavailable

# SQLite's WAL needs shared memory and locks that these do not give between machines, some not even on one.
NETWORK_FILE_SYSTEM = re.compile(
    r"(fuse\.)?"
    r"(9p|afs|beegfs|ceph|cifs|coda|curlftpfs|davfs|gcsfuse|gfs2|glusterfs|gpfs|juicefs|lizardfs|lustre|mfs|moosefs"
    r"|ncpfs|nfs[34]?|ocfs2|orangefs|panfs|pvfs2|rclone|s3fs|smb[23]|smbfs|smbnetfs|sshfs)"
)
_BE_THE_OWNER = "run gpuqueued as the user who owns it"
_MAGIC = b"SQLite format 3\0"


def refuse_network_file_system(directory: Path, mountinfo: Path = Path("/proc/self/mountinfo")) -> None:
    """Raises GpuqueueError(UNAVAILABLE) where `directory` is on a file system that other machines share.
    Read from the mount table, since statfs cannot tell one FUSE file system from another."""
    kind = file_system_of(directory, mountinfo.read_text(encoding="utf-8", errors="surrogateescape"))
    if NETWORK_FILE_SYSTEM.fullmatch(kind):
        raise unavailable(
            f"{directory} is on a network file system ({kind}), where a SQLite database breaks",
            "put state_dir on a local disk, for example /var/lib/gpuqueue",
        )


def file_system_of(directory: Path, mountinfo: str) -> str:
    """The type of the file system that holds `directory`, by proc(5)'s mountinfo; "" when it does not say."""
    place, best, kind = directory.resolve(), -1, ""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:
            continue
        mounted = Path(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), fields[4]))
        depth = len(mounted.parts)
        if depth >= best and place.is_relative_to(mounted):  # of two mounts on one place the later one counts
            best, kind = depth, after.split(" ")[0]
    return kind


def is_there(path: Path) -> bool:
    """Whether there is a database to open. Raises GpuqueueError(UNAVAILABLE) for what must never become an
    empty one: a file that is not SQLite's, or signs of a database that is gone."""
    try:
        with path.open("rb") as file:
            start = file.read(len(_MAGIC))
    except FileNotFoundError:
        _refuse_if_lost(path)
        return False
    except OSError as error:
        raise unavailable(f"cannot read {path}: {error.strerror}", _BE_THE_OWNER) from error
    if start != _MAGIC:
        what = "is empty" if not start else "is not a SQLite database"
        raise unavailable(f"{path} {what}", restore_hint(path))
    return True


def _refuse_if_lost(path: Path) -> None:
    backups = path.parent / "backups"
    traces = [path.with_name(path.name + "-wal"), *sorted(backups.glob(f"*{path.suffix}"))[-1:]]
    for trace in traces:
        if trace.exists():
            raise unavailable(
                f"{path} is missing, but {trace} shows that there was one",
                f"{restore_hint(path)}, or move {path.parent} away to start anew",
            )


def keep_private(path: Path) -> None:
    """Mode 0600 for the database and its companions: environments are inside (J1)."""
    for name in (path.name, path.name + "-wal", path.name + "-shm"):
        companion = path.with_name(name)
        try:
            companion.chmod(0o600)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise unavailable(f"cannot protect {companion}: {error.strerror}", _BE_THE_OWNER) from error


def refuse_damage(path: Path, engine: Engine) -> None:
    """Raises GpuqueueError(UNAVAILABLE) unless SQLite finds every page, index and reference in order."""
    with in_plain_words(path), engine.connect() as connection:
        findings = [str(row[0]) for row in connection.exec_driver_sql("PRAGMA integrity_check(3)") if row[0] != "ok"]
        for row in connection.exec_driver_sql("PRAGMA foreign_key_check"):
            findings.append(f"a row of {row[0]} refers to nothing")
    if findings:
        raise unavailable(f"{path} is damaged: {findings[0]}", restore_hint(path))


def copy_database(source: Path, target: Path) -> None:
    """A consistent copy of a database that may be in use, mode 0600, whole or not there at all.
    Raises GpuqueueError(UNAVAILABLE) where it cannot be written."""
    unfinished = target.with_name(target.name + ".tmp")
    try:
        create_private(unfinished)
        with in_plain_words(target), closing(_connect(source)) as from_, closing(_connect(unfinished)) as to:
            from_.backup(to)
            to.execute("PRAGMA journal_mode=DELETE")  # one file that needs no companions
        move_into_place(unfinished, target)
    except OSError as error:
        raise unavailable(f"cannot write {target}: {error.strerror}", "make room or give another place") from error
    finally:
        unfinished.unlink(missing_ok=True)


def create_private(path: Path) -> None:
    """An empty file of mode 0600 in the place of whatever was there."""
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True, timeout=5)


def move_into_place(unfinished: Path, target: Path) -> None:
    """Durable rename: after a power cut there is the whole file or none."""
    for path in (unfinished, target.parent):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if path is unfinished:
            unfinished.replace(target)
