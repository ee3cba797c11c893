"""The store's tables as this version of laxity wants them, and when SQLite writes its log back."""

from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, text

MIGRATIONS: Final = Path(__file__).parent / "migrations"
CHECKPOINT_PAGES: Final = 1000  # SQLite's own
MIGRATION_LOCK: Final = 0x6C617869  # one replica migrates a shared database at a time


def migrate_schema(engine: Engine) -> None:
    """Bring the tables up to date; one process at a time on a shared database."""
    from alembic import command

    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text(f"select pg_advisory_xact_lock({MIGRATION_LOCK})"))
        command.upgrade(_alembic_config(connection), "head")


def _alembic_config(connection: Any) -> Any:
    """What alembic needs to know: where the migrations are, and the open connection."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def set_checkpoint(connection: Connection, *, checkpoint: bool) -> None:
    """Let this transaction write SQLite's checkpoint, or leave it to a later one.

    A commit that finds 4 MB in the write-ahead log copies them into the file and waits for the disk:
    20 to 40 ms, which a cycle that is about to act does not have.
    """
    if connection.dialect.name == "sqlite":
        pages = 0 if checkpoint else CHECKPOINT_PAGES
        connection.exec_driver_sql(f"PRAGMA wal_autocheckpoint = {pages}")
