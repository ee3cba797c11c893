"""The journal says which version of laxity decided each cycle; before, nobody wrote it down."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the column; cycles that are there keep an empty version."""
    op.add_column("cycles", sa.Column("version", sa.String(), nullable=False, server_default=""))
