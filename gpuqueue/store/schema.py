"""From any released schema to this one: Alembic, run by hand, with a backup first."""

import time
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect

from gpuqueue.store.faults import in_plain_words, restore_hint, unavailable
from gpuqueue.store.files import copy_database

MIGRATIONS = Path(__file__).parent / "migrations"


def bring_up_to_date(path: Path, engine: Engine, migrations: Path = MIGRATIONS) -> None:
    """Every migration that the database at `path` lacks, all or none, after a copy of it went to `backups/`.
    Raises GpuqueueError(UNAVAILABLE) for a schema that this release does not know."""
    scripts = ScriptDirectory(str(migrations))
    newest = scripts.get_current_head()
    with in_plain_words(path), engine.connect() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
        tables = inspect(connection).get_table_names()
    if current == newest:
        return
    if current is None and tables:
        raise unavailable(f"{path} is a SQLite database, but not gpuqueue's", restore_hint(path))
    known = {script.revision for script in scripts.walk_revisions()}
    if current is not None and current not in known:
        raise unavailable(
            f"{path} was written by a newer gpuqueue (schema {current}; this release knows {newest})",
            f"install that release again, or {restore_hint(path)}",
        )
    if current is not None:
        _back_up(path, f"before-{newest}")
    config = Config()
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    # A migration that makes a table anew drops the old one, which would take all that refers to it along. The
    # pragma does nothing within a transaction, hence around it.
    _enforce_references(engine, False)
    with in_plain_words(path), engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        if broken := connection.exec_driver_sql("PRAGMA foreign_key_check").first():
            raise RuntimeError(f"the migration to {newest} leaves rows of {broken[0]} that refer to nothing")
    _enforce_references(engine, True)


def _enforce_references(engine: Engine, on: bool) -> None:
    raw = engine.raw_connection()
    raw.cursor().execute(f"PRAGMA foreign_keys={'ON' if on else 'OFF'}")
    raw.close()


def _back_up(path: Path, why: str) -> None:
    backups = path.parent / "backups"
    backups.mkdir(mode=0o700, exist_ok=True)
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    copy_database(path, backups / f"{path.stem}-{why}-{stamp}{path.suffix}")
