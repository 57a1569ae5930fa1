"""Opens the store, or refuses: an unreadable database never becomes an empty one."""

import sqlite3
from pathlib import Path

from sqlalchemy import Engine

from gpuqueue.store.faults import in_plain_words, restore_hint, unavailable
from gpuqueue.store.files import (
    create_private,
    is_there,
    keep_private,
    move_into_place,
    refuse_damage,
    refuse_network_file_system,
)
from gpuqueue.store.schema import MIGRATIONS, bring_up_to_date
from gpuqueue.store.sqlite import SqliteStore, connect

_OLDEST_SQLITE = (3, 35, 0)  # generated columns, RETURNING


def open_store(path: Path, migrations: Path = MIGRATIONS) -> SqliteStore:
    """The store at `path`, made where there was none, checked and migrated where there was. Its directory must
    exist. Raises GpuqueueError(UNAVAILABLE), with the way out, for everything that cannot be trusted."""
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        raise unavailable(
            f"this Python brings SQLite {sqlite3.sqlite_version}", "use a Python with SQLite 3.35 or newer"
        )
    if not path.parent.is_dir():
        raise unavailable(f"there is no directory {path.parent}", "create it, or set state_dir to one that exists")
    refuse_network_file_system(path.parent)
    if not is_there(path):
        _create(path, migrations)
    keep_private(path)
    engine = connect(path)
    try:
        refuse_damage(path, engine)
        bring_up_to_date(path, engine, migrations)
        _use_wal(path, engine)
        return _readable(SqliteStore(path, engine), path)
    except BaseException:
        engine.dispose()
        raise


def _create(path: Path, migrations: Path) -> None:
    """Made under another name and moved into place when it is complete: a start that was interrupted leaves no
    database behind, so that an empty file always means damage."""
    unfinished = path.with_name(path.name + ".new")
    try:
        for companion in ("-wal", "-shm"):
            unfinished.with_name(unfinished.name + companion).unlink(missing_ok=True)
        create_private(unfinished)
    except OSError as error:
        raise unavailable(f"cannot create {path}: {error.strerror}", "run gpuqueued as a user who may") from error
    engine = connect(unfinished)
    try:
        bring_up_to_date(unfinished, engine, migrations)
    finally:
        engine.dispose()
    move_into_place(unfinished, path)


def _use_wal(path: Path, engine: Engine) -> None:
    """Not before the file is known to be ours: the mode is written into it. A restored backup has another."""
    with in_plain_words(path):
        raw = engine.raw_connection()
        [mode] = raw.cursor().execute("PRAGMA journal_mode=WAL").fetchone()
        raw.close()
    if mode != "wal":
        raise unavailable(f"the file system of {path} has no shared memory for SQLite", "put state_dir on a local disk")


def _readable(store: SqliteStore, path: Path) -> SqliteStore:
    """The store, once every job and lease that a tick will need has been read."""
    try:
        store.open_jobs()
        store.held_attempts()
    except (ValueError, TypeError, KeyError) as error:
        raise unavailable(f"a record in {path} cannot be read: {error}", restore_hint(path)) from error
    return store
