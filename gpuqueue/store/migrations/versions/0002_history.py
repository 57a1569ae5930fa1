"""The history of runs, which outlives jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def _from_record(name: str, kind: type[sa.types.TypeEngine], field: str, nullable: bool = False) -> sa.Column:
    computed = sa.Computed(f"json_extract(record, '$.{field}')", persisted=False)
    return sa.Column(name, kind(), computed, nullable=nullable)


def upgrade() -> None:
    op.create_table(
        "run",
        sa.Column("id", sa.Integer(), primary_key=True, nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        _from_record("uid", sa.Integer, "uid"),
        _from_record("account", sa.Text, "account"),
        _from_record("program", sa.Text, "work.program"),
        _from_record("family", sa.Text, "work.family", nullable=True),
        _from_record("ended_unix", sa.Integer, "ended_unix"),
        sqlite_autoincrement=True,
    )
    op.create_index("run_by_attempt", "run", ["job_id", "attempt"], unique=True)
    op.create_index("run_by_family", "run", ["account", "family"])
    op.create_index("run_by_program", "run", ["account", "program"])
    op.create_index("run_by_uid", "run", ["uid"])
