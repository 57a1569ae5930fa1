"""Schemas: what is created fresh, what migrations make, and what released ones bring along."""

import json
import shutil
import sqlite3
import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.exc import IntegrityError
from sqlmodel import SQLModel

from gpuqueue.core.policy import Nominal
from gpuqueue.store import tables
from gpuqueue.store.open import open_store
from gpuqueue.store.records import encode
from gpuqueue.store.schema import MIGRATIONS
from gpuqueue.wire.errors import GpuqueueError
from tests.store.full import FULL_ATTEMPT, FULL_JOB, FULL_REQUEST

RELEASED = sorted((Path(__file__).parent / "released").glob("*.sql"))

NEXT_MIGRATION = """
from alembic import op
import sqlalchemy as sa

revision = "next"
down_revision = "0002"


def upgrade():
    op.add_column("quota", sa.Column("note", sa.Text()))
"""


TABLE_MADE_ANEW = """
from alembic import op

revision = "next"
down_revision = "0002"


def upgrade():
    op.execute("CREATE TABLE job_new (id INTEGER NOT NULL PRIMARY KEY, idempotency_key TEXT, record TEXT, "
               "uid INTEGER GENERATED ALWAYS AS (json_extract(record, '$.uid')) VIRTUAL, "
               "user TEXT GENERATED ALWAYS AS (json_extract(record, '$.user')) VIRTUAL, "
               "state TEXT GENERATED ALWAYS AS (json_extract(record, '$.state')) VIRTUAL, "
               "ended_unix INTEGER GENERATED ALWAYS AS (json_extract(record, '$.ended_unix')) VIRTUAL)")
    op.execute("INSERT INTO job_new SELECT id, idempotency_key, record FROM job")
    op.execute("DROP TABLE job")
    op.execute("ALTER TABLE job_new RENAME TO job")
"""


def schema_of(path: Path) -> dict[str, str]:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name != 'alembic_version'"
        )
        return {name: " ".join(sql.split()) for name, sql in rows}


def restored(dump: Path, path: Path) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(dump.read_text(encoding="utf-8"))
    return path


def test_a_fresh_schema_equals_the_migrated_one(tmp_path: Path) -> None:
    assert SQLModel.metadata is tables.JobRow.metadata
    engine = create_engine(f"sqlite:///{tmp_path / 'fresh.db'}")
    SQLModel.metadata.create_all(engine)
    engine.dispose()
    open_store(tmp_path / "migrated.db").close()
    assert schema_of(tmp_path / "fresh.db") == schema_of(tmp_path / "migrated.db")


def test_every_migration_has_its_released_dump() -> None:
    versions = {name.name.split("_")[0] for name in (MIGRATIONS / "versions").glob("*.py")}
    assert {dump.stem for dump in RELEASED} == versions


def rows_of(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return [json.loads(record) for (record,) in connection.execute(query)]


def keeps(old: Any, new: Any) -> bool:
    """Whether all that is in `old` is in `new`, which may have fields of its own."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(key in new and keeps(value, new[key]) for key, value in old.items())
    return bool(old == new)


@pytest.mark.parametrize("dump", RELEASED, ids=lambda dump: dump.stem)
def test_every_released_schema_still_opens_with_all_that_is_in_it(tmp_path: Path, dump: Path) -> None:
    path = restored(dump, tmp_path / "gpuqueue.db")
    [job, ended] = rows_of(path, "SELECT record FROM job ORDER BY id")
    [attempt, _] = rows_of(path, "SELECT record FROM attempt ORDER BY job_id")
    [request, _] = rows_of(path, "SELECT record FROM request ORDER BY job_id")
    store = open_store(path)
    try:
        assert keeps(job, json.loads(encode(store.job(1))))
        assert keeps(request, json.loads(encode(store.request(1))))
        assert keeps(attempt, json.loads(encode(store.attempts(1)[0])))
        assert keeps(ended, json.loads(encode(store.ended_jobs(10, "anna")[0])))
        assert [one.id for one in store.open_jobs()] == [one.job_id for one in store.held_attempts()] == [1]
        assert store.quotas() == {"anna": Nominal(train_mib=20480), "ben": Nominal(light_mib=0)}
        assert store.usage() == {"anna": (2**40, 77)}
        assert store.drained() == {"GPU-a": "its fan is loud"}
        assert store.engine_second() == 86_400
        assert [(event.kind, event.job_id) for event in store.events(0, 10)] == [("quota", None), ("started", 1)]
        assert store.add_job(FULL_JOB, FULL_REQUEST) == (store.job(1), False)
        added, _ = store.add_job(FULL_JOB, replace(FULL_REQUEST, idempotency_key="new"))
        assert added.id == 4  # 3 was there, and is forgotten
    finally:
        store.close()


@pytest.mark.parametrize("dump", RELEASED, ids=lambda dump: dump.stem)
def test_every_released_schema_migrates_to_the_fresh_one(tmp_path: Path, dump: Path) -> None:
    old, new = tmp_path / "old" / "gpuqueue.db", tmp_path / "new" / "gpuqueue.db"
    for path in (old, new):
        path.parent.mkdir()
    open_store(restored(dump, old)).close()
    open_store(new).close()
    assert schema_of(old) == schema_of(new)


@pytest.fixture
def released(tmp_path: Path) -> Path:
    state = tmp_path / "state"
    state.mkdir()
    return restored(RELEASED[-1], state / "gpuqueue.db")


def migrations_with(tmp_path: Path, migration: str) -> Path:
    copy = tmp_path / "migrations"
    shutil.copytree(MIGRATIONS, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "versions" / "next.py").write_text(migration)
    return copy


def test_a_migration_is_preceded_by_a_backup(tmp_path: Path, released: Path) -> None:
    before = schema_of(released)
    open_store(released, migrations_with(tmp_path, NEXT_MIGRATION)).close()
    assert "note" in schema_of(released)["quota"]
    [backup] = (released.parent / "backups").iterdir()
    assert backup.name.startswith("gpuqueue-before-next-")
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert stat.S_IMODE(backup.parent.stat().st_mode) == 0o700
    assert schema_of(backup) == before
    store = open_store(backup)
    assert [one.id for one in store.open_jobs()] == [1]
    store.close()


def test_a_migration_that_fails_leaves_the_database_as_it_was(tmp_path: Path, released: Path) -> None:
    before = schema_of(released)
    failing = NEXT_MIGRATION + "    op.execute(\"INSERT INTO attempt (job_id, number, record) VALUES (99, 1, '{}')\")\n"
    with pytest.raises(Exception, match="constraint"):
        open_store(released, migrations_with(tmp_path, failing))
    assert schema_of(released) == before
    store = open_store(released)
    assert [one.id for one in store.open_jobs()] == [1]
    store.close()


def test_a_migration_that_makes_a_table_anew_keeps_what_refers_to_it(tmp_path: Path, released: Path) -> None:
    store = open_store(released, migrations_with(tmp_path, TABLE_MADE_ANEW))
    try:
        assert store.request(1) is not None
        assert [one.job_id for one in store.held_attempts()] == [1]
        with pytest.raises(IntegrityError):  # references count again
            store.save_attempt(replace(FULL_ATTEMPT, job_id=99))
    finally:
        store.close()


def test_a_migration_that_breaks_references_is_undone(tmp_path: Path, released: Path) -> None:
    breaking = NEXT_MIGRATION + '    op.execute("DELETE FROM job WHERE id = 1")\n'
    with pytest.raises(RuntimeError, match="refer to nothing"):
        open_store(released, migrations_with(tmp_path, breaking))
    store = open_store(released)
    assert [one.id for one in store.open_jobs()] == [1]
    store.close()


def test_an_older_release_refuses_what_a_newer_one_migrated(tmp_path: Path, released: Path) -> None:
    open_store(released, migrations_with(tmp_path, NEXT_MIGRATION)).close()
    with pytest.raises(GpuqueueError, match="newer gpuqueue"):
        open_store(released)


def test_a_database_of_this_release_is_opened_without_a_backup(released: Path) -> None:
    open_store(released).close()
    assert not (released.parent / "backups").exists()


def test_the_environment_is_in_the_request_alone(released: Path) -> None:
    with closing(sqlite3.connect(released)) as connection:
        tables_with_it = {
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            if any("LATIN1" in str(row) for row in connection.execute(f"SELECT * FROM {name}"))
        }
    assert tables_with_it == {"request"}
