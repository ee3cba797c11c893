"""Points that MLflow does not have yet, so that a kill of the service loses none."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Make the table, empty."""
    op.create_table(
        "waiting_points",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("uid", sa.String(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_waiting_points")),
    )
    op.create_index(op.f("ix_waiting_points_uid"), "waiting_points", ["uid"])
