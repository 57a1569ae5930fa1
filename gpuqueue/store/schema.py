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
    with in_plain_words(path), engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def _back_up(path: Path, why: str) -> None:
    backups = path.parent / "backups"
    backups.mkdir(mode=0o700, exist_ok=True)
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    copy_database(path, backups / f"{path.stem}-{why}-{stamp}{path.suffix}")
