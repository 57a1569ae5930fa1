"""The Store on SQLite: WAL, an fsync for every commit, one connection that one thread at a time uses.

Every method is one transaction of its own, or part of the one that `transaction()` opened.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from threading import RLock
from typing import Any

from sqlalchemy import Engine, Row, bindparam, create_engine, delete, event, select, update
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool
from sqlmodel import Session

from gpuqueue.core.history import PastRun
from gpuqueue.core.model import Attempt, AttemptPhase, Job
from gpuqueue.core.policy import Nominal
from gpuqueue.store.faults import in_plain_words
from gpuqueue.store.files import copy_database
from gpuqueue.store.records import decode, encode
from gpuqueue.store.tables import ATTEMPT, CLOCK, DRAINED, EVENT, JOB, QUOTA, REQUEST, RUN, USAGE
from gpuqueue.wire.jobs import EventView, SubmitRequest
from gpuqueue.wire.states import FINAL_STATES, JobState

OPEN = sorted(set(JobState) - FINAL_STATES)
HELD = sorted(set(AttemptPhase) - {AttemptPhase.ENDED})
BUSY_TIMEOUT_S = 5

# What a tick says again and again, built once.
_JOBS = select(JOB.c.id, JOB.c.record)
_OPEN_JOBS = _JOBS.where(JOB.c.state.in_(OPEN)).order_by(JOB.c.id)
_SAVE_JOB = (
    update(JOB)
    .where(JOB.c.id == bindparam("job_id"), JOB.c.state == bindparam("expect"))
    .values(record=bindparam("text"))
)
_ATTEMPTS = select(ATTEMPT.c.record).order_by(ATTEMPT.c.job_id, ATTEMPT.c.number)
_HELD_ATTEMPTS = _ATTEMPTS.where(ATTEMPT.c.phase.in_(HELD))
_SAVE_ATTEMPT = insert(ATTEMPT)
_SAVE_ATTEMPT = _SAVE_ATTEMPT.on_conflict_do_update(
    index_elements=["job_id", "number"], set_={"record": _SAVE_ATTEMPT.excluded.record}
)


# Frozen records may be shared: a tick that reads what it read before parses nothing again.
@lru_cache(maxsize=20_000)
def _job(job_id: int, record: str) -> Job:
    return decode(Job, record, id=job_id)


@lru_cache(maxsize=2_000)
def _attempt(record: str) -> Attempt:
    return decode(Attempt, record)


def connect(path: Path) -> Engine:
    """An engine with one connection to the existing file at `path`, which it leaves as it is until it writes."""
    engine = create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(
            f"{path.resolve().as_uri()}?mode=rw", uri=True, timeout=BUSY_TIMEOUT_S, check_same_thread=False
        ),
        poolclass=StaticPool,
    )

    @event.listens_for(engine, "connect")
    def _set_up(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None  # transactions begin where we say so, below
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    @event.listens_for(engine, "begin")
    def _begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")  # never fails half-way for want of the write lock

    return engine


class SqliteStore:
    """Satisfies engine.ports.Store; see there for what each method means. Raises GpuqueueError(UNAVAILABLE)
    when the disk cannot do it, and then nothing of the transaction was written."""

    def __init__(self, path: Path, engine: Engine) -> None:
        self._path = path
        self._engine = engine
        self._session = Session(engine)
        self._lock = RLock()
        self._broken: DBAPIError | None = None
        self._after_commit: list[Callable[[], None]] = []  # of the transaction under way

    def after_commit(self, call: Callable[[], None]) -> None:
        with self._lock:
            if self._session.in_transaction():
                self._after_commit.append(call)
            else:
                call()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._lock:
            nested = self._session.in_transaction()
            with self._work() as session:
                if nested:
                    with self._savepoint(session):
                        yield
                else:
                    yield

    @contextmanager
    def _savepoint(self, session: Session) -> Iterator[None]:
        say = session.connection().exec_driver_sql
        say("SAVEPOINT inner_transaction")
        before = len(self._after_commit)
        try:
            yield
            self._refuse_if_broken()
        except BaseException:
            del self._after_commit[before:]
            if self._broken is None:
                say("ROLLBACK TO inner_transaction")
                say("RELEASE inner_transaction")
            raise
        say("RELEASE inner_transaction")

    @contextmanager
    def _work(self) -> Iterator[Session]:
        """The transaction under way, or one for this call alone. When a statement fails, SQLite may have rolled
        all of it back by itself (a full disk does that): nothing more may then be written in its name."""
        with self._lock, in_plain_words(self._path):
            if not self._session.in_transaction():
                self._broken = None
                self._after_commit = []
                with self._session.begin():
                    yield self._session
                    self._refuse_if_broken()
                for call in self._after_commit:
                    call()
                return
            self._refuse_if_broken()
            try:
                yield self._session
            except DBAPIError as error:
                self._broken = error
                raise

    def _refuse_if_broken(self) -> None:
        if self._broken is not None:
            raise self._broken

    def add_job(self, job: Job, request: SubmitRequest) -> tuple[Job, bool]:
        key = _storable(request.idempotency_key)
        with self._work() as session:
            known = _JOBS.where(JOB.c.uid == job.uid, JOB.c.idempotency_key == key)
            if row := session.execute(known).first():
                return _job(*row), False
            record = encode(job, without=("id",))
            made = session.execute(insert(JOB).values(idempotency_key=key, record=record).returning(JOB.c.id))
            job_id = made.scalar_one()
            session.execute(insert(REQUEST).values(job_id=job_id, record=encode(request)))
        return _job(job_id, record), True

    def save_job(self, job: Job, expect: str) -> bool:
        row = {"job_id": job.id, "expect": str(expect), "text": encode(job, without=("id",))}
        with self._work() as session:
            return bool(session.connection().execute(_SAVE_JOB, row).rowcount)

    def job(self, job_id: int) -> Job | None:
        with self._work() as session:
            row = session.execute(_JOBS.where(JOB.c.id == job_id)).first()
        return _job(*row) if row else None

    def request(self, job_id: int) -> SubmitRequest | None:
        with self._work() as session:
            record = session.execute(select(REQUEST.c.record).where(REQUEST.c.job_id == job_id)).scalar()
        return decode(SubmitRequest, record) if record else None

    def open_jobs(self) -> list[Job]:
        with self._work() as session:
            return [_job(*row) for row in session.execute(_OPEN_JOBS)]

    def ended_jobs(self, limit: int, user: str | None = None) -> list[Job]:
        wanted = _JOBS.where(JOB.c.state.not_in(OPEN))
        if user is not None:
            wanted = wanted.where(JOB.c.user == user)
        wanted = wanted.order_by(JOB.c.ended_unix.desc(), JOB.c.id.desc()).limit(limit)
        with self._work() as session:
            return [_job(*row) for row in session.execute(wanted)]

    def save_attempt(self, attempt: Attempt) -> None:
        row = {"job_id": attempt.job_id, "number": attempt.number, "record": encode(attempt)}
        with self._work() as session:
            session.execute(_SAVE_ATTEMPT, row)

    def attempts(self, job_id: int) -> list[Attempt]:
        with self._work() as session:
            return [_attempt(row[0]) for row in session.execute(_ATTEMPTS.where(ATTEMPT.c.job_id == job_id))]

    def held_attempts(self) -> list[Attempt]:
        with self._work() as session:
            return [_attempt(row[0]) for row in session.execute(_HELD_ATTEMPTS)]

    def quotas(self) -> dict[str, Nominal]:
        with self._work() as session:
            rows = session.execute(select(QUOTA))
            return {row.account: Nominal(train_mib=row.train_mib, light_mib=row.light_mib) for row in rows}

    def set_quota(self, account: str, nominal: Nominal | None) -> None:
        with self._work() as session:
            session.execute(delete(QUOTA).where(QUOTA.c.account == account))
            if nominal is not None:
                row = {"account": account, "train_mib": nominal.train_mib, "light_mib": nominal.light_mib}
                session.execute(insert(QUOTA).values(row))

    def usage(self) -> dict[str, tuple[int, int]]:
        with self._work() as session:
            return {row.account: (row.mib_seconds, row.decayed_at) for row in session.execute(select(USAGE))}

    def set_usage(self, usage: Mapping[str, tuple[int, int]]) -> None:
        row = insert(USAGE)
        row = row.on_conflict_do_update(
            index_elements=["account"],
            set_={"mib_seconds": row.excluded.mib_seconds, "decayed_at": row.excluded.decayed_at},
        )
        values = [{"account": name, "mib_seconds": amount, "decayed_at": at} for name, (amount, at) in usage.items()]
        with self._work() as session:
            if values:
                session.execute(row, values)

    def drained(self) -> dict[str, str]:
        with self._work() as session:
            return {row.uuid: row.why for row in session.execute(select(DRAINED))}

    def set_drained(self, uuid: str, why: str | None) -> None:
        with self._work() as session:
            session.execute(delete(DRAINED).where(DRAINED.c.uuid == uuid))
            if why is not None:
                session.execute(insert(DRAINED).values(uuid=uuid, why=_storable(why)))

    def add_event(self, kind: str, actor: str, text: str, job_id: int | None, at_unix: int) -> EventView:
        row = {"at_unix": at_unix, "kind": kind, "job_id": job_id, "actor": actor, "text": _storable(text)}
        with self._work() as session:
            return _event(session.execute(insert(EVENT).values(row).returning(EVENT)).one())

    def events(self, after: int, limit: int, job_id: int | None = None) -> list[EventView]:
        wanted = select(EVENT).limit(limit)
        if job_id is not None:
            wanted = wanted.where(EVENT.c.job_id == job_id)
        newest = after == -1
        wanted = wanted.order_by(EVENT.c.id.desc()) if newest else wanted.where(EVENT.c.id > after).order_by(EVENT.c.id)
        with self._work() as session:
            rows = session.execute(wanted).all()
        return [_event(row) for row in (reversed(rows) if newest else rows)]

    def add_run(self, run: PastRun) -> None:
        row = {"job_id": run.job_id, "attempt": run.attempt, "record": encode(run, without=("id",))}
        with self._work() as session:
            session.execute(insert(RUN).values(row).on_conflict_do_nothing())

    def runs(
        self,
        limit: int,
        *,
        before: int | None = None,
        uid: int | None = None,
        account: str | None = None,
        program: str | None = None,
        family: str | None = None,
    ) -> list[PastRun]:
        wanted = select(RUN.c.id, RUN.c.record).order_by(RUN.c.id.desc()).limit(limit)
        if before is not None:
            wanted = wanted.where(RUN.c.id < before)
        for column, value in (
            (RUN.c.uid, uid),
            (RUN.c.account, account),
            (RUN.c.program, program),
            (RUN.c.family, family),
        ):
            if value is not None:
                wanted = wanted.where(column == value)
        with self._work() as session:
            return [decode(PastRun, record, id=run_id) for run_id, record in session.execute(wanted)]

    def prune_runs(self, before_unix: int) -> None:
        with self._work() as session:
            session.execute(delete(RUN).where(RUN.c.ended_unix < before_unix))

    def engine_second(self) -> int:
        with self._work() as session:
            return session.execute(select(CLOCK.c.engine_second)).scalar() or 0

    def keep_engine_second(self, now: int) -> None:
        row = insert(CLOCK).values(id=1, engine_second=now)
        with self._work() as session:
            session.execute(row.on_conflict_do_update(index_elements=["id"], set_={"engine_second": now}))

    def prune(self, before_unix: int) -> Sequence[tuple[int, int]]:
        held = select(ATTEMPT.c.job_id).where(ATTEMPT.c.phase.in_(HELD))  # Z3: a lease outlives its job
        old = (JOB.c.ended_unix < before_unix) & JOB.c.state.not_in(OPEN) & JOB.c.id.not_in(held)
        gone = select(ATTEMPT.c.job_id, ATTEMPT.c.number).join(JOB, JOB.c.id == ATTEMPT.c.job_id).where(old)
        unneeded = EVENT.c.job_id.is_(None) | EVENT.c.job_id.not_in(select(JOB.c.id))
        with self._work() as session:
            attempts = [(job_id, number) for job_id, number in session.execute(gone.order_by(*gone.selected_columns))]
            session.execute(delete(JOB).where(old))  # its request and attempts go with it
            session.execute(delete(EVENT).where((EVENT.c.at_unix < before_unix) & unneeded))
        return attempts

    def reserve_ids(self, up_to: int) -> None:
        """New jobs get ids above `up_to`. For a backup that was put back: it does not know of the jobs that came
        after it, whose run directories are still there."""
        with self._work() as session:
            say = session.connection().exec_driver_sql
            known = say("SELECT seq FROM sqlite_sequence WHERE name = 'job'").scalar()
            if known is None:
                say("INSERT INTO sqlite_sequence (name, seq) VALUES ('job', 0)")
            say("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = 'job'", (up_to,))

    def backup(self, path: str) -> None:
        copy_database(self._path, Path(path))

    def close(self) -> None:
        with self._lock:
            self._session.close()
            self._engine.dispose()


def _event(row: Row[Any]) -> EventView:
    return EventView(id=row.id, at=row.at_unix, kind=row.kind, job_id=row.job_id, actor=row.actor, text=row.text)


def _storable(text: str) -> str:
    """SQLite takes no lone surrogates: bytes that are not UTF-8 (of a path, say) are written as \\udcff."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
