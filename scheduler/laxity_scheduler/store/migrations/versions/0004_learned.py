"""Learned policies: which fell back to their teachers, and what shadows would have done."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Make both tables."""
    op.create_table(
        "fallbacks",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("policy", sa.String(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_fallbacks")),
    )
    op.create_table(
        "shadows",
        sa.Column("cycle", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("policy", sa.String(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("decided_s", sa.Float(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("cycle", "policy", name=op.f("pk_shadows")),
    )
