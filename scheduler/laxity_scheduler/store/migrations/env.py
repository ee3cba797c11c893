"""What alembic runs: the migrations on the connection that the store has opened.

The service migrates by itself when it opens its store; no alembic.ini and no URL are needed.
"""

from alembic import context

from laxity_scheduler.store.tables import VERSION_TABLE, ServiceTable

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=ServiceTable.metadata,
    version_table=VERSION_TABLE,
    compare_type=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
