"""The leader among several replicas: one row, whose term only grows."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the table with its only row: nobody has led yet."""
    made = op.create_table(
        "leader",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leader")),
    )
    op.bulk_insert(made, [{"id": 1, "term": 0, "holder": "", "since": 0.0}])
