"""What a restart must know of inference: what it needed slot by slot, and the order about loans."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Make both tables, empty: nobody has given an order yet."""
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
