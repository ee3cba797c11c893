"""Groups of jobs with one deadline."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the table of groups and its indexes."""
    op.create_table(
        "groups",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("workflow", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("service_class", sa.String(), nullable=False),
        sa.Column("deadline_at", sa.Float(), nullable=False),
        sa.Column("submitted_at", sa.Float(), nullable=False),
        sa.Column("finished_at", sa.Float(), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_groups")),
    )
    for column in ("namespace", "state", "workflow"):
        op.create_index(op.f(f"ix_groups_{column}"), "groups", [column])
