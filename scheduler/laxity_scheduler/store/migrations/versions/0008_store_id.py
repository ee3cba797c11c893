"""The database has a random id, so that a cluster can say whose store its service has."""

import uuid

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the column, and an id in the only row."""
    op.add_column("leader", sa.Column("store", sa.String(), nullable=False, server_default=""))
    leader = sa.table("leader", sa.column("store"))
    op.execute(leader.update().values(store=uuid.uuid4().hex))
