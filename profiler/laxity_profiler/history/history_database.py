"""The profiler's memory in a database: epochs and stops that were seen, and what was not believed.

SQLite in WAL mode by default, PostgreSQL by URL, the same tables on both. Every insert is
idempotent (a conflict changes nothing), so that a report which arrives twice counts once. This
module is the only one on this floor that knows SQLModel and SQLAlchemy.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    URL,
    BigInteger,
    Connection,
    Engine,
    Index,
    Integer,
    MetaData,
    Text,
    UniqueConstraint,
    delete,
    event,
    func,
    inspect,
    make_url,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.orm import registry
from sqlalchemy.schema import CreateColumn
from sqlmodel import Field, SQLModel, create_engine

from laxity.private_files import private_file
from laxity.safe_text import without_secrets
from laxity_profiler.history.observations import Epoch

# What MLflow on a database raises, too. SQLite's driver cannot decode its own words about a damaged
# file where they quote it.
DATABASE_ERRORS: Final = (SQLAlchemyError, UnicodeDecodeError)
ROWS_PER_INSERT: Final = 10_000
TABLES_LOCK: Final = 0x6C617868  # not that of a leader (0x6C617870), who holds it while he leads
_RowId: Final = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers only INTEGER keys


class HistoryError(RuntimeError):
    """The database did not answer or refused: nothing was written of what was asked."""


class HistoryTable(SQLModel, registry=registry(metadata=MetaData())):
    """Tables of this floor; apart from those of other floors in the same database."""


class RunRecord(HistoryTable, table=True):
    """One job (by uid): what it trains, how far its reports were taken, and what they came to."""

    __tablename__ = "observed_runs"

    uid: str = Field(primary_key=True)
    job: str = ""
    model: str = Field(default="", index=True)
    workload: str = Field(default="{}", sa_type=Text)
    acked: int = Field(default=0, sa_type=BigInteger)
    said: str = Field(default="", sa_type=Text)
    folds: int = Field(default=0, sa_type=BigInteger)
    at: float = Field(default=0.0, index=True)
    epochs_trained: int | None = (
        None  # when its function returned; null: it has not, or did not say
    )


class EpochRecord(HistoryTable, table=True):
    """One epoch that was trained, once, whatever was reported how often."""

    __tablename__ = "observed_epochs"
    __table_args__ = (
        UniqueConstraint("uid", "epoch"),
        Index("ix_observed_epochs_model", "model", "id"),
    )

    id: int | None = Field(default=None, primary_key=True, sa_type=_RowId)
    uid: str
    epoch: int
    model: str
    width: int
    epoch_s: float
    bytes: int = Field(sa_type=BigInteger)
    warmup: bool
    at: float
    nodes: int | None = None  # that the workers lay on; null: nobody knows
    gpu_type: str = Field(default="", sa_column_kwargs={"server_default": ""})  # "": nobody knows


class StopRecord(HistoryTable, table=True):
    """One save, stop, start, load or re-forming, with what it took."""

    __tablename__ = "observed_stops"
    __table_args__ = (
        UniqueConstraint("uid", "kind", "at"),
        Index("ix_observed_stops_model", "model", "id"),
    )

    id: int | None = Field(default=None, primary_key=True, sa_type=_RowId)
    uid: str
    kind: str
    model: str
    workers: int
    seconds: float
    bytes: int | None = Field(default=None, sa_type=BigInteger)
    at: float


class RejectedReport(HistoryTable, table=True):
    """A line, or a run, that was not believed, and why."""

    __tablename__ = "set_aside"

    id: int | None = Field(default=None, primary_key=True, sa_type=_RowId)
    uid: str = Field(index=True)
    reason: str = Field(sa_type=Text)
    line: str = Field(sa_type=Text)
    at: float


class PredictionRecord(HistoryTable, table=True):
    """A remaining time as it was predicted, and in the end what it really was."""

    __tablename__ = "predictions"
    __table_args__ = (UniqueConstraint("uid", "stage"),)

    id: int | None = Field(default=None, primary_key=True, sa_type=_RowId)
    uid: str
    model: str = Field(index=True)
    stage: str
    version: str
    at: float
    p10_s: float
    p50_s: float
    p90_s: float
    actual_s: float | None = None


class StoredSetting(HistoryTable, table=True):
    """How far another source (an MLflow store) was read."""

    __tablename__ = "watermarks"

    source: str = Field(primary_key=True)
    position: str = Field(sa_type=Text)


def _columns_of(table: type[HistoryTable]) -> Any:
    """The columns of a table; class attributes have the types of their values instead."""
    return table.metadata.tables[str(table.__tablename__)].c


RUNS: Final = _columns_of(RunRecord)
EPOCHS: Final = _columns_of(EpochRecord)
STOPS: Final = _columns_of(StopRecord)
REJECTED: Final = _columns_of(RejectedReport)
PREDICTIONS: Final = _columns_of(PredictionRecord)
SETTINGS: Final = _columns_of(StoredSetting)

NO_DATABASE_URL: Final = (
    "the store's URL is none; write sqlite:///PATH or postgresql://USER@HOST/NAME"
)


def open_engine(url: str) -> Engine:
    """Open `sqlite:///path` or `postgresql://user:password@host/name`; the tables are made."""
    try:
        engine = create_database_engine(url)
    except ArgumentError as error:  # its text may hold a password
        raise HistoryError(NO_DATABASE_URL) from error
    try:
        create_tables(engine)
    except HistoryError:
        engine.dispose()
        raise
    return engine


def create_database_engine(url: str) -> Engine:
    """SQLite in WAL mode, its folder made if need be, or PostgreSQL. ArgumentError: no URL."""
    try:
        where = make_url(url)
    except ValueError as error:  # of a port
        raise ArgumentError(NO_DATABASE_URL) from error
    if where.drivername in ("postgres", "postgresql"):
        where = where.set(drivername="postgresql+psycopg")
    if where.get_backend_name() != "sqlite":
        engine = create_engine(where, pool_pre_ping=True)
    else:
        if where.database and where.database != ":memory:":
            private_file(Path(where.database))
        engine = create_engine(where)
        event.listen(engine, "connect", _set_pragmas)
    return engine


def shown_address(url: URL) -> str:
    """Where a database is, without who logs in there."""
    return without_secrets(url.render_as_string())


def cause_of(error: Exception, url: URL) -> str:
    """What a database's driver says, without the password that it may quote."""
    cause = getattr(error, "orig", None) or error
    return without_secrets(str(cause), url.render_as_string(hide_password=False))


def create_tables(engine: Engine) -> None:
    """Make the tables and columns that are missing; what is there stays.

    One replica at a time: PostgreSQL fails the second of two that make the same table.
    """
    with open_transaction(engine) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text(f"select pg_advisory_xact_lock({TABLES_LOCK})"))
        HistoryTable.metadata.create_all(connection)
        _add_columns(connection)


def _add_columns(connection: Connection) -> None:
    """Those that tables of an earlier laxity lack; all have a default that the database knows."""
    there = inspect(connection)
    for table in HistoryTable.metadata.sorted_tables:
        names = {column["name"] for column in there.get_columns(table.name)}
        for column in table.columns:
            if column.name not in names:
                column_text = CreateColumn(column).compile(dialect=connection.dialect)
                connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {column_text}"))


@contextmanager
def open_transaction(engine: Engine) -> Iterator[Connection]:
    """All or nothing; HistoryError if the database does not do it."""
    try:
        with engine.begin() as connection:
            yield connection
    except DATABASE_ERRORS as error:
        message = f"the history at {shown_address(engine.url)} did not do it"
        raise HistoryError(f"{message}: {cause_of(error, engine.url)}") from error


def insert_new(
    connection: Connection, table: type[HistoryTable], rows: Sequence[Mapping[str, Any]]
) -> None:
    """Insert rows; one whose key is there already changes nothing."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(table).on_conflict_do_nothing()
    for first in range(0, len(rows), ROWS_PER_INSERT):
        connection.execute(statement, rows[first : first + ROWS_PER_INSERT])


def lock_run(connection: Connection, uid: str, *, job: str, model: str) -> Any:
    """The run's row, made if it is not there, ours until the transaction ends."""
    insert_new(connection, RunRecord, [{"uid": uid, "job": job, "model": model}])
    statement = select(RUNS.acked, RUNS.folds, RUNS.said, RUNS.model)
    return connection.execute(statement.where(RUNS.uid == uid).with_for_update()).one()


def write_run(connection: Connection, uid: str, values: Mapping[str, Any]) -> None:
    connection.execute(update(RunRecord).where(RUNS.uid == uid).values(**values))


def read_run(connection: Connection, uid: str) -> Any:
    """(uid, model, workload, folds, said) of one run, or None."""
    return connection.execute(_select_runs().where(RUNS.uid == uid)).one_or_none()


def runs_since(connection: Connection, at: float) -> Sequence[Any]:
    """The rows of the runs that reported at or after this instant."""
    return connection.execute(_select_runs().where(RUNS.at >= at)).all()


def _select_runs() -> Any:
    return select(RUNS.uid, RUNS.model, RUNS.workload, RUNS.folds, RUNS.said)


def runs_of(connection: Connection, model: str) -> Sequence[Any]:
    """(uid, workload, epochs trained) of the runs of a model."""
    chosen = select(RUNS.uid, RUNS.workload, RUNS.epochs_trained)
    statement = chosen.where(RUNS.model == model)
    return connection.execute(statement).all()


def epochs_of(connection: Connection, model: str, most: int) -> Sequence[Any]:
    """(uid, and the fields of an Epoch in order), the latest `most`, newest first."""
    row = EPOCHS
    columns = [row[field.name] for field in fields(Epoch)]
    newest = select(row.uid, *columns).where(row.model == model).order_by(row.id.desc()).limit(most)
    return connection.execute(newest).all()


def stops_of(connection: Connection, most: int, *, longest_s: float) -> Sequence[Any]:
    """(model, kind, workers, seconds, bytes, at), the latest `most`, newest first.

    Without what an earlier laxity took from two clocks: "finish", and stops longer than this.
    """
    row = STOPS
    statement = select(row.model, row.kind, row.workers, row.seconds, row.bytes, row.at).where(
        row.kind != "finish", or_(row.kind == "finishing", row.seconds <= longest_s)
    )
    return connection.execute(statement.order_by(row.id.desc()).limit(most)).all()


def counts_after(connection: Connection, table: type[HistoryTable], row_id: int) -> Sequence[Any]:
    """(model, new rows, greatest id) by model, of the rows after this one."""
    row = _columns_of(table)
    statement = select(row.model, func.count(), func.max(row.id)).where(row.id > row_id)
    return connection.execute(statement.group_by(row.model)).all()


def rejections_of(connection: Connection, uid: str | None) -> Sequence[Any]:
    """(uid, reason, line, at), oldest first; of one uid, or of all."""
    row = REJECTED
    statement = select(row.uid, row.reason, row.line, row.at).order_by(row.id)
    if uid is not None:
        statement = statement.where(row.uid == uid)
    return connection.execute(statement).all()


def predictions_of(connection: Connection, uid: str | None) -> Sequence[Any]:
    """Predictions of one job, or all that came to an end, oldest first."""
    row = PREDICTIONS
    statement = select(
        row.uid, row.model, row.stage, row.at, row.p10_s, row.p50_s, row.p90_s, row.actual_s
    )
    chosen = row.actual_s.is_not(None) if uid is None else row.uid == uid
    return connection.execute(statement.where(chosen).order_by(row.id)).all()


def write_actual(connection: Connection, uid: str, stage: str, actual_s: float) -> None:
    chosen = update(PredictionRecord).where(PREDICTIONS.uid == uid, PREDICTIONS.stage == stage)
    connection.execute(chosen.values(actual_s=actual_s))


def drop_predictions(connection: Connection, uid: str) -> None:
    """Those that have not come to an end."""
    is_open = PREDICTIONS.actual_s.is_(None)
    connection.execute(delete(PredictionRecord).where(PREDICTIONS.uid == uid, is_open))


def read_setting(connection: Connection, source: str) -> str:
    statement = select(SETTINGS.position).where(SETTINGS.source == source)
    return str(connection.execute(statement).scalar_one_or_none() or "")


def write_setting(connection: Connection, source: str, position: str) -> None:
    insert_new(connection, StoredSetting, [{"source": source, "position": position}])
    chosen = update(StoredSetting).where(SETTINGS.source == source)
    connection.execute(chosen.values(position=position))


def swap_setting(connection: Connection, source: str, before: str, after: str) -> bool:
    """Write the position if it still is `before` ("": there is none); whether it was."""
    insert_new(connection, StoredSetting, [{"source": source, "position": ""}])
    chosen = update(StoredSetting).where(SETTINGS.source == source, SETTINGS.position == before)
    return bool(connection.execute(chosen.values(position=after)).rowcount)


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
