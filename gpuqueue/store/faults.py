"""SQLite's errors in plain words: what the disk or the file cannot do is UNAVAILABLE; our own mistakes stay bugs."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from gpuqueue.wire.errors import ErrorCode, GpuqueueError

_FULL_BELOW_BYTES = 64 * 1024  # SQLite reports a failed growth of its -shm file as an I/O error, not as "full"

_DAMAGED_RECORD = "malformed JSON"  # what a generated column says of the record that it is computed from


@contextmanager
def in_plain_words(path: Path) -> Iterator[None]:
    """Turns the faults of the database at `path` into a GpuqueueError(UNAVAILABLE)."""
    try:
        yield
    except DBAPIError as error:
        if _is_a_bug(error.orig):
            raise
        raise _plain(path, error.orig) from error
    except sqlite3.DatabaseError as error:
        if _is_a_bug(error):
            raise
        raise _plain(path, error) from error


def unavailable(message: str, hint: str) -> GpuqueueError:
    return GpuqueueError(ErrorCode.UNAVAILABLE, message, hint)


def _is_a_bug(error: BaseException | None) -> bool:
    if isinstance(error, (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.DataError)):
        return True
    wrong_statement = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR
    return wrong_statement and str(error) != _DAMAGED_RECORD


def _plain(path: Path, error: BaseException | None) -> GpuqueueError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary code of an extended one
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _is_full(path)):
        return unavailable(
            f"the disk that holds {path} is full; nothing was written",
            "free some space there: no restart is needed",
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return unavailable(f"another process keeps {path} locked", "close whatever has the database open")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or str(error) == _DAMAGED_RECORD:
        return unavailable(f"{path} is damaged: {error}", restore_hint(path))
    return unavailable(f"cannot use {path}: {error}", "see the kernel log for errors of that disk")


def restore_hint(path: Path) -> str:
    return f"restore a backup from {path.parent / 'backups'}, as docs/install.md says"


def _is_full(path: Path) -> bool:
    try:
        space = os.statvfs(path.parent)
    except OSError:
        return False
    return space.f_bavail * space.f_frsize < _FULL_BELOW_BYTES
