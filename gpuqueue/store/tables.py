"""The tables. They never leave this package: dataclasses of `core` and `wire` go in and come out.

A job, an attempt and a request are each kept as one JSON record, and that record is the only truth: what is
queried is a generated column, which SQLite computes from the record, so the two cannot disagree. A column for
a new query is one migration that rewrites no row.
"""

from typing import Any

from sqlalchemy import Column, Computed, Index, Integer, Text
from sqlmodel import Field, SQLModel


def _from_record(kind: type[Text] | type[Integer], field: str, nullable: bool = False) -> Column[Any]:
    return Column(kind, Computed(f"json_extract(record, '$.{field}')", persisted=False), nullable=nullable)


class JobRow(SQLModel, table=True):
    """Ids are never used again (AUTOINCREMENT): a forgotten job's run directory cannot be taken for a new one's."""

    __tablename__ = "job"
    __table_args__ = (
        Index("job_by_key", "uid", "idempotency_key", unique=True),  # J5
        Index("job_by_state", "state"),
        Index("job_by_end", "ended_unix"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = Field(default=None, primary_key=True)
    idempotency_key: str = Field(sa_type=Text)
    record: str = Field(sa_type=Text)  # core.model.Job without its id
    uid: int = Field(sa_column=_from_record(Integer, "uid"))
    user: str = Field(sa_column=_from_record(Text, "user"))
    state: str = Field(sa_column=_from_record(Text, "state"))
    ended_unix: int | None = Field(sa_column=_from_record(Integer, "ended_unix", nullable=True))


class RequestRow(SQLModel, table=True):
    """What was submitted, the environment included (J1): read when an attempt starts, never for a view."""

    __tablename__ = "request"

    job_id: int = Field(primary_key=True, foreign_key="job.id", ondelete="CASCADE")
    record: str = Field(sa_type=Text)  # wire.jobs.SubmitRequest


class AttemptRow(SQLModel, table=True):
    __tablename__ = "attempt"
    __table_args__ = (Index("attempt_by_phase", "phase"),)

    job_id: int = Field(primary_key=True, foreign_key="job.id", ondelete="CASCADE")
    number: int = Field(primary_key=True)
    record: str = Field(sa_type=Text)  # core.model.Attempt
    phase: str = Field(sa_column=_from_record(Text, "phase"))


class RunRow(SQLModel, table=True):
    """The history: an attempt each, kept when its job is forgotten, hence no foreign key."""

    __tablename__ = "run"
    __table_args__ = (
        Index("run_by_attempt", "job_id", "attempt", unique=True),
        Index("run_by_program", "account", "program"),
        Index("run_by_family", "account", "family"),
        Index("run_by_uid", "uid"),
        {"sqlite_autoincrement": True},
    )

    id: int | None = Field(default=None, primary_key=True)
    job_id: int
    attempt: int
    record: str = Field(sa_type=Text)  # core.history.PastRun without its id
    uid: int = Field(sa_column=_from_record(Integer, "uid"))
    account: str = Field(sa_column=_from_record(Text, "account"))
    program: str = Field(sa_column=_from_record(Text, "work.program"))
    family: str | None = Field(sa_column=_from_record(Text, "work.family", nullable=True))
    ended_unix: int = Field(sa_column=_from_record(Integer, "ended_unix"))


class EventRow(SQLModel, table=True):
    """Appended, never changed (A5). It may name a job that is forgotten by now, hence no foreign key."""

    __tablename__ = "event"
    __table_args__ = (Index("event_by_job", "job_id"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, primary_key=True)
    at_unix: int
    kind: str = Field(sa_type=Text)
    job_id: int | None = None
    actor: str = Field(sa_type=Text)
    text: str = Field(sa_type=Text)


class QuotaRow(SQLModel, table=True):
    """Set with `gq quota set`; NULL leaves a class to the policy file (Q1)."""

    __tablename__ = "quota"

    account: str = Field(sa_type=Text, primary_key=True)
    train_mib: int | None = None
    light_mib: int | None = None


class UsageRow(SQLModel, table=True):
    """Fair-share's memory (S1)."""

    __tablename__ = "usage"

    account: str = Field(sa_type=Text, primary_key=True)
    mib_seconds: int
    decayed_at: int


class DrainedRow(SQLModel, table=True):
    __tablename__ = "drained"

    uuid: str = Field(sa_type=Text, primary_key=True)
    why: str = Field(sa_type=Text)


class ClockRow(SQLModel, table=True):
    """One row, id 1: the engine clock as last kept."""

    __tablename__ = "clock"

    id: int | None = Field(default=None, primary_key=True)
    engine_second: int


# Rows are read and written as plain tuples: a tick over forty jobs builds no object per row.
JOB, REQUEST, ATTEMPT, RUN, EVENT, QUOTA, USAGE, DRAINED, CLOCK = (
    SQLModel.metadata.tables[name]
    for name in ("job", "request", "attempt", "run", "event", "quota", "usage", "drained", "clock")
)
