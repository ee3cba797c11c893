"""Opening the database by its URL, with its tables as this version of laxity wants them."""

from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event, make_url, text

from laxity.private_files import private_file

MIGRATIONS: Final = Path(__file__).parent / "migrations"
CHECKPOINT_PAGES: Final = 1000  # SQLite's own
MIGRATION_LOCK: Final = 0x6C617869  # one replica migrates a shared database at a time


def create_database_engine(url: str) -> Engine:
    """SQLite in WAL mode, its folder made if need be, or PostgreSQL."""
    where = make_url(url)
    if where.drivername in ("postgres", "postgresql"):
        where = where.set(drivername="postgresql+psycopg")
    if where.get_backend_name() != "sqlite":
        return create_engine(where, pool_pre_ping=True)
    if where.database and where.database != ":memory:":
        private_file(Path(where.database))
    engine = create_engine(where)
    event.listen(engine, "connect", _set_pragmas)
    return engine


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


def _set_pragmas(connection: Any, _record: object) -> None:
    """WAL makes a commit 0.25 ms instead of 16; all but the first are per connection."""
    cursor = connection.cursor()
    for pragma in (
        "journal_mode = WAL",
        "synchronous = NORMAL",
        "foreign_keys = ON",
        "busy_timeout = 10000",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def set_checkpoint(connection: Connection, *, checkpoint: bool) -> None:
    """Let this transaction write SQLite's checkpoint, or leave it to a later one.

    A commit that finds 4 MB in the write-ahead log copies them into the file and waits for the disk:
    20 to 40 ms, which a cycle that is about to act does not have.
    """
    if connection.dialect.name == "sqlite":
        pages = 0 if checkpoint else CHECKPOINT_PAGES
        connection.exec_driver_sql(f"PRAGMA wal_autocheckpoint = {pages}")
