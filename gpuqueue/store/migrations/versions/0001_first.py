"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "job",
        sa.Column("id", sa.Integer(), primary_key=True, nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.Column("uid", sa.Integer(), sa.Computed("json_extract(record, '$.uid')", persisted=False), nullable=False),
        sa.Column("user", sa.Text(), sa.Computed("json_extract(record, '$.user')", persisted=False), nullable=False),
        sa.Column("state", sa.Text(), sa.Computed("json_extract(record, '$.state')", persisted=False), nullable=False),
        sa.Column("ended_unix", sa.Integer(), sa.Computed("json_extract(record, '$.ended_unix')", persisted=False)),
        sqlite_autoincrement=True,
    )
    op.create_index("job_by_end", "job", ["ended_unix"])
    op.create_index("job_by_key", "job", ["uid", "idempotency_key"], unique=True)
    op.create_index("job_by_state", "job", ["state"])
    op.create_table(
        "request",
        sa.Column("job_id", sa.Integer(), sa.ForeignKey("job.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("record", sa.Text(), nullable=False),
    )
    op.create_table(
        "attempt",
        sa.Column("job_id", sa.Integer(), sa.ForeignKey("job.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.Integer(), primary_key=True),
        sa.Column("record", sa.Text(), nullable=False),
        sa.Column("phase", sa.Text(), sa.Computed("json_extract(record, '$.phase')", persisted=False), nullable=False),
    )
    op.create_index("attempt_by_phase", "attempt", ["phase"])
    op.create_table(
        "event",
        sa.Column("id", sa.Integer(), primary_key=True, nullable=False),
        sa.Column("at_unix", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Integer()),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("event_by_job", "event", ["job_id"])
    op.create_table(
        "quota",
        sa.Column("account", sa.Text(), primary_key=True),
        sa.Column("train_mib", sa.Integer()),
        sa.Column("light_mib", sa.Integer()),
    )
    op.create_table(
        "usage",
        sa.Column("account", sa.Text(), primary_key=True),
        sa.Column("mib_seconds", sa.Integer(), nullable=False),
        sa.Column("decayed_at", sa.Integer(), nullable=False),
    )
    op.create_table(
        "drained",
        sa.Column("uuid", sa.Text(), primary_key=True),
        sa.Column("why", sa.Text(), nullable=False),
    )
    op.create_table(
        "clock",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("engine_second", sa.Integer(), nullable=False),
    )
