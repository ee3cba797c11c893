"""The tables of 0.1.0."""

import uuid

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

INDEXES = {
    "cycles": ("full", "predictor"),
    "decisions": ("cycle", "job"),
    "jobs": ("job", "namespace", "outcome", "state"),
    "loans": ("node",),
    "verdicts": ("job", "uid"),
    "waiting_points": ("uid",),
}


def upgrade() -> None:
    """Make all tables and their indexes."""
    _create_journal()
    _create_records()
    _create_leader()
    _create_loans()
    _create_learned()
    for table, columns in INDEXES.items():
        for column in columns:
            op.create_index(op.f(f"ix_{table}_{column}"), table, [column])


def _create_journal() -> None:
    op.create_table(
        "cycles",
        sa.Column("cycle", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("policy", sa.String(), nullable=False),
        sa.Column("predictor", sa.String(), nullable=False),
        sa.Column("full", sa.Boolean(), nullable=False),
        sa.Column("state", sa.LargeBinary(), nullable=False),
        sa.Column("plan", sa.LargeBinary(), nullable=False),
        sa.Column("decided_s", sa.Float(), nullable=False),
        sa.Column("version", sa.String(), nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("cycle", name=op.f("pk_cycles")),
    )
    op.create_table(
        "predictors",
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_predictors")),
    )
    op.create_table(
        "decisions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("cycle", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("job", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("reason_code", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_decisions")),
    )


def _create_records() -> None:
    op.create_table(
        "verdicts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uid", sa.String(), nullable=False),
        sa.Column("job", sa.String(), nullable=False),
        sa.Column("cycle", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("deadline_at", sa.Float(), nullable=False),
        sa.Column("p50_at", sa.Float(), nullable=False),
        sa.Column("p90_at", sa.Float(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_verdicts")),
    )
    op.create_table(
        "jobs",
        sa.Column("uid", sa.String(), nullable=False),
        sa.Column("job", sa.String(), nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("submitted_at", sa.Float(), nullable=False),
        sa.Column("finished_at", sa.Float(), nullable=True),
        sa.Column("view", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_jobs")),
    )
    op.create_table(
        "waiting_points",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("uid", sa.String(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_waiting_points")),
    )


def _create_leader() -> None:
    """With its only row: nobody has led yet, and the database has a random id."""
    leader = op.create_table(
        "leader",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.Column("store", sa.String(), nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leader")),
    )
    nobody = {"id": 1, "term": 0, "holder": "", "since": 0.0, "store": uuid.uuid4().hex}
    op.bulk_insert(leader, [nobody])


def _create_loans() -> None:
    op.create_table(
        "loans",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("cycle", sa.BigInteger(), nullable=False),
        sa.Column("taken_at", sa.Float(), nullable=False),
        sa.Column("returned_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_loans")),
    )
    op.create_table(
        "inference_slots",
        sa.Column("slot", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("needed_gpus", sa.Float(), nullable=False),
        sa.Column("forecast_gpus", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("slot", name=op.f("pk_inference_slots")),
    )
    op.create_table(
        "loan_orders",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("allowed_gpus", sa.Integer(), nullable=True),
        sa.Column("reclaim_by", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_loan_orders")),
    )


def _create_learned() -> None:
    op.create_table(
        "fallbacks",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("policy", sa.String(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_fallbacks")),
    )
    op.create_table(
        "pool_arrivals",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("pool", sa.String(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pool_arrivals")),
    )
    op.create_table(
        "policy_models",
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_policy_models")),
    )
    op.create_table(
        "policy_aliases",
        sa.Column("alias", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("alias", name=op.f("pk_policy_aliases")),
    )
