"""Opening a store, or refusing to: an unreadable database never becomes an empty one."""

import os
import sqlite3
import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from gpuqueue.store.files import file_system_of, refuse_network_file_system
from gpuqueue.store.open import open_store
from gpuqueue.store.sqlite import connect
from gpuqueue.wire.errors import ErrorCode, GpuqueueError
from tests.builders import job
from tests.store.full import FULL_JOB, FULL_REQUEST


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A closed database with one job in it."""
    path = tmp_path / "gpuqueue.db"
    store = open_store(path)
    store.add_job(job(0), FULL_REQUEST)
    store.close()
    return path


def refused(path: Path) -> GpuqueueError:
    """The error that opening `path` ends with, after a check that nothing was changed."""
    before = {name: name.read_bytes() for name in path.parent.iterdir() if name.is_file()}
    with pytest.raises(GpuqueueError) as caught:
        open_store(path)
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert str(path.parent) in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint
    assert {name: name.read_bytes() for name in before} == before
    return caught.value


def run_sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def test_a_new_store_is_there_empty_and_private(tmp_path: Path) -> None:
    store = open_store(tmp_path / "gpuqueue.db")
    assert store.open_jobs() == []
    store.add_job(FULL_JOB, FULL_REQUEST)  # so that the -wal file has something in it
    files = sorted(tmp_path.iterdir())
    assert [name.name for name in files] == ["gpuqueue.db", "gpuqueue.db-shm", "gpuqueue.db-wal"]
    assert {stat.S_IMODE(name.stat().st_mode) for name in files} == {0o600}
    store.close()


def test_the_database_is_private_under_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = open_store(tmp_path / "gpuqueue.db")
        store.backup(str(tmp_path / "copy.db"))
        store.close()
    finally:
        os.umask(before)
    assert {stat.S_IMODE(name.stat().st_mode) for name in tmp_path.iterdir()} == {0o600}


def test_a_database_that_others_could_read_is_made_private(database: Path) -> None:
    database.chmod(0o644)
    open_store(database).close()
    assert stat.S_IMODE(database.stat().st_mode) == 0o600


def test_commits_are_synced_and_references_enforced(database: Path) -> None:
    open_store(database).close()
    engine = connect(database)
    with engine.connect() as connection:
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    engine.dispose()
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 5000}


def test_an_empty_file_is_refused(database: Path) -> None:
    database.write_bytes(b"")
    assert "is empty" in refused(database).message


def test_what_is_no_database_is_refused(database: Path) -> None:
    database.write_text("[daemon]\n")
    assert "not a SQLite database" in refused(database).message


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gpuqueue.db"
    run_sql(path, "CREATE TABLE bookmarks (url TEXT)")
    assert "not gpuqueue's" in refused(path).message


def test_the_schema_of_a_newer_release_is_refused(database: Path) -> None:
    run_sql(database, "UPDATE alembic_version SET version_num = '9999'")
    error = refused(database)
    assert "newer gpuqueue (schema 9999" in error.message
    assert "backups" in error.hint


@pytest.mark.parametrize("keep_share", [0.1, 0.5, 0.9])
def test_a_truncated_database_is_refused(database: Path, keep_share: float) -> None:
    os.truncate(database, int(database.stat().st_size * keep_share))
    assert "damaged" in refused(database).message


def test_overwritten_pages_are_refused(database: Path) -> None:
    with database.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(4096) * (database.stat().st_size // 4096 - 1))
    assert "damaged" in refused(database).message


def test_an_attempt_of_no_job_is_refused(database: Path) -> None:
    run_sql(database, 'INSERT INTO attempt (job_id, number, record) VALUES (77, 1, \'{"phase": "ended"}\')')
    assert "a row of attempt refers to nothing" in refused(database).message


@pytest.mark.parametrize("change", ["'$.state', 'queued', '$.ask', 7", "'$.ask.restart', 'perhaps'"])
def test_an_open_job_that_cannot_be_read_is_refused(database: Path, change: str) -> None:
    run_sql(database, f"UPDATE job SET record = json_set(record, {change})")
    assert "cannot be read" in refused(database).message


def test_a_record_that_is_damaged_within_its_page_is_refused(database: Path) -> None:
    whole = database.read_bytes()
    assert whole.count(b'{"user":"anna"') == 1
    database.write_bytes(whole.replace(b'{"user":"anna"', b'x"user":"anna"'))
    assert "damaged" in refused(database).message


def test_a_backup_that_cannot_be_written_says_so(database: Path) -> None:
    store = open_store(database)
    with pytest.raises(GpuqueueError, match=r"cannot write .*/nowhere/copy\.db: No such file") as caught:
        store.backup(str(database.parent / "nowhere/copy.db"))
    assert caught.value.code is ErrorCode.UNAVAILABLE
    store.close()


def test_a_database_that_is_gone_but_left_a_backup_is_refused(database: Path) -> None:
    backups = database.parent / "backups"
    backups.mkdir()
    database.rename(backups / "nightly-2026-01-01.db")
    error = refused(database)
    assert "is missing" in error.message
    assert "nightly-2026-01-01.db" in error.message
    assert not database.exists()


def test_a_database_that_is_gone_but_left_its_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gpuqueue.db"
    (tmp_path / "gpuqueue.db-wal").write_bytes(b"x")
    assert "is missing" in refused(path).message
    assert not path.exists()


def test_a_start_that_was_cut_off_while_creating_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    for name in ("gpuqueue.db.new", "gpuqueue.db.new-wal"):
        (tmp_path / name).write_bytes(b"half")
    open_store(tmp_path / "gpuqueue.db").close()
    assert [name.name for name in tmp_path.iterdir()] == ["gpuqueue.db"]


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(GpuqueueError, match=r"there is no directory .*/nowhere") as caught:
        open_store(tmp_path / "nowhere/gpuqueue.db")
    assert "state_dir" in caught.value.hint


def test_a_directory_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "gpuqueue.db").mkdir()
    assert "cannot read" in refused(tmp_path / "gpuqueue.db").message


def test_what_was_accepted_is_there_although_the_log_was_never_merged(database: Path, tmp_path: Path) -> None:
    """A copy of the three files while they are in use is what a power cut leaves."""
    store = open_store(database)
    added, _ = store.add_job(job(0), replace(FULL_REQUEST, idempotency_key="late"))
    after_cut = tmp_path / "after-cut"
    after_cut.mkdir()
    for name in (database.name, database.name + "-wal"):
        (after_cut / name).write_bytes(database.with_name(name).read_bytes())
    other = open_store(after_cut / database.name)
    assert other.job(added.id) == added
    for opened in (store, other):
        opened.close()


@pytest.mark.parametrize("fresh", [True, False])
def test_ids_that_run_directories_use_are_not_given_again(tmp_path: Path, fresh: bool) -> None:
    store = open_store(tmp_path / "gpuqueue.db")
    if not fresh:
        store.add_job(job(0), FULL_REQUEST)
    store.reserve_ids(41)
    store.reserve_ids(7)
    added, _ = store.add_job(job(0), replace(FULL_REQUEST, idempotency_key="after"))
    assert added.id == 42
    store.close()


MOUNTS = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /home rw - nfs4 server:/home rw,vers=4.2
31 30 8:2 / /home/local rw - xfs /dev/sdb1 rw
32 22 0:41 / /srv/a\040b rw - fuse.sshfs ann@host:/ rw
33 22 0:42 / /mnt rw - ext4 /dev/sdc1 rw
34 33 0:43 / /mnt rw master:1 - lustre 10.0.0.1@tcp:/fs rw
35 22 0:44 / /fuse rw - fuse.fuse-overlayfs overlay rw
broken line
"""


@pytest.mark.parametrize(
    ("directory", "kind"),
    [
        ("/var/lib/gpuqueue", "ext4"),
        ("/", "ext4"),
        ("/home/ann/state", "nfs4"),
        ("/homes", "ext4"),
        ("/home/local/state", "xfs"),
        ("/srv/a b/state", "fuse.sshfs"),
        ("/mnt/state", "lustre"),
        ("/fuse/state", "fuse.fuse-overlayfs"),
    ],
)
def test_the_file_system_is_that_of_the_innermost_newest_mount(directory: str, kind: str) -> None:
    assert file_system_of(Path(directory), MOUNTS) == kind


def test_this_very_directory_is_on_some_file_system(tmp_path: Path) -> None:
    assert file_system_of(tmp_path, Path("/proc/self/mountinfo").read_text())


NETWORK = ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "lustre", "gpfs", "beegfs", "ceph", "fuse.glusterfs", "9p"]
LOCAL = ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuse.fuse-overlayfs", "fuseblk", "virtiofs"]


@pytest.mark.parametrize("kind", NETWORK + LOCAL)
def test_a_network_file_system_is_refused_a_local_one_is_not(tmp_path: Path, kind: str) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(f"22 1 8:1 / / rw - {kind} somewhere rw\n")
    if kind in LOCAL:
        refuse_network_file_system(tmp_path, mountinfo)
        return
    with pytest.raises(GpuqueueError, match=rf"network file system \({kind}\)") as caught:
        refuse_network_file_system(tmp_path, mountinfo)
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert "state_dir" in caught.value.hint
