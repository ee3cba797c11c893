"""Learned policies of MLflow's registry, so that a restart while MLflow is away has them."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Make both tables, empty."""
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
