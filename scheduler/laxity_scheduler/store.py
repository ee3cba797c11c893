"""The service's memory: its journal, the verdicts it gave, and the jobs it has seen end.

The cluster is the truth about what runs; these tables hold what no cluster keeps: why something was
decided, what was promised, and how it came out. SQLite in WAL mode by default, PostgreSQL by URL;
alembic brings the tables of an older laxity up to date when a store is opened. This module is the
only one on this floor that knows SQLModel and SQLAlchemy.

One cycle is one transaction. Its number is the journal's primary key, so a second service that
decides the same cycle is turned away by the database before it has acted.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

from sqlalchemy import BigInteger, Connection, Engine, MetaData, event, func, make_url, text
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import registry
from sqlmodel import Field, Session, SQLModel, col, create_engine, delete, select

MIGRATIONS: Final = Path(__file__).parent / "migrations"
VERSION_TABLE: Final = "laxity_schema"
MIGRATION_LOCK: Final = 0x6C617869  # one replica migrates a shared database at a time
LEADER_LOCK: Final = 0x6C617870  # ... and one acts
TEXT_LIMIT: Final = 8_000
OPEN_STATES: Final = ("queued", "running", "stopping", "suspended", "refused")
_NAMES: Final = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
}


class StoreError(RuntimeError):
    """The database did not answer or refused: nothing was written of what was asked."""


class StaleServiceError(StoreError):
    """Another service has decided this cycle already: this one may not act on it."""


class Table(SQLModel, registry=registry(metadata=MetaData(naming_convention=_NAMES))):
    """Tables of this floor; apart from those of other floors in the same database."""


class CycleRow(Table, table=True):
    """One decided cycle: the snapshot (whole, or what changed) and the plan, as codec bytes."""

    __tablename__ = "cycles"

    cycle: int = Field(
        primary_key=True, sa_type=BigInteger, sa_column_kwargs={"autoincrement": False}
    )
    at: float
    policy: str
    predictor: str = Field(index=True)
    full: bool = Field(index=True)
    state: bytes
    plan: bytes
    decided_s: float


class PredictorRow(Table, table=True):
    """The parameters of one predictor version, compressed."""

    __tablename__ = "predictors"

    version: str = Field(primary_key=True)
    at: float
    body: bytes


class DecisionRow(Table, table=True):
    """One decision with its reason, for people who ask why."""

    __tablename__ = "decisions"

    id: int | None = Field(default=None, primary_key=True)
    cycle: int = Field(index=True, sa_type=BigInteger)
    at: float
    job: str = Field(index=True)
    kind: str
    reason_code: str
    reason: str
    body: bytes


class VerdictRow(Table, table=True):
    """One verdict as it was given. Instants are POSIX seconds; no deadline is infinity."""

    __tablename__ = "verdicts"

    id: int | None = Field(default=None, primary_key=True)
    uid: str = Field(index=True)
    job: str = Field(index=True)
    cycle: int = Field(sa_type=BigInteger)
    at: float
    kind: str
    deadline_at: float
    p50_at: float
    p90_at: float
    body: bytes


class JobRow(Table, table=True):
    """A job as it was last seen, so that one that is gone from the cluster can still be shown."""

    __tablename__ = "jobs"

    uid: str = Field(primary_key=True)
    job: str = Field(index=True)
    namespace: str = Field(index=True)
    state: str = Field(index=True)
    outcome: str = Field(default="", index=True)
    submitted_at: float
    finished_at: float | None = None
    view: bytes


class LoanRow(Table, table=True):
    """An inference node lent to training, until it is handed back."""

    __tablename__ = "loans"

    id: int | None = Field(default=None, primary_key=True)
    node: str = Field(index=True)
    cycle: int = Field(sa_type=BigInteger)
    taken_at: float
    returned_at: float | None = None


class Store:
    """An open database. Methods are safe to call from several threads; each is one transaction."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._leader: Connection | None = None
        self._holds = False

    @classmethod
    def open(cls, url: str) -> Self:
        """Open and migrate `sqlite:///path` or `postgresql://user:password@host/name`."""
        engine = _engine(url)
        try:
            migrate(engine)
        except SQLAlchemyError as error:
            engine.dispose()
            message = f"the store at {make_url(url).render_as_string()} cannot be opened: {error}"
            raise StoreError(message) from error
        return cls(engine)

    def close(self) -> None:
        self._resign()
        self.engine.dispose()

    @property
    def alone(self) -> bool:
        """Whether no other replica can use this store."""
        return self.engine.dialect.name != "postgresql"

    def leads(self) -> bool:
        """Whether this process is the one that acts.

        On PostgreSQL a lock says so that goes with its connection; an SQLite file has one service,
        whose home is locked.
        """
        if self.alone:
            return True
        try:
            if self._leader is None:
                self._leader = self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            asked = text(f"select pg_try_advisory_lock({LEADER_LOCK})")
            if not self._holds:
                self._holds = bool(self._leader.execute(asked).scalar_one())
            else:
                self._leader.execute(text("select 1"))
        except SQLAlchemyError as error:
            self._resign()
            raise StoreError(f"the store cannot say who leads: {error}") from error
        return self._holds

    def _resign(self) -> None:
        self._holds = False
        if self._leader is not None:
            self._leader.invalidate()
            self._leader.close()
            self._leader = None

    def ping(self) -> None:
        """Ask the database for nothing; StoreError if it does not answer."""
        with self._session() as session:
            session.connection().execute(text("select 1"))

    def last_cycle(self) -> int:
        """The number of the last decided cycle, 0 before the first."""
        with self._session() as session:
            return session.exec(select(func.max(CycleRow.cycle))).one() or 0

    def record(self, rows: Iterable[Table], jobs: Iterable[JobRow] = ()) -> None:
        """Write new rows, and jobs as they are now, all or nothing."""
        new = list(rows)
        with self._session() as session:
            session.add_all(new)
            for job in jobs:
                session.merge(job)
            try:
                session.commit()
            except IntegrityError as error:
                if not any(isinstance(row, CycleRow) for row in new):
                    raise
                message = f"this cycle was decided by another service: {error.orig}"
                raise StaleServiceError(message) from error

    def cycles(self, first: int, last: int | None = None) -> Iterator[CycleRow]:
        """Journalled cycles from the full snapshot at or before `first`, in order."""
        with self._session() as session:
            start = self._full_at_or_before(session, first)
            query = select(CycleRow).where(CycleRow.cycle >= start).order_by(col(CycleRow.cycle))
            if last is not None:
                query = query.where(CycleRow.cycle <= last)
            yield from session.exec(query.execution_options(yield_per=100))

    def predictor(self, version: str) -> bytes | None:
        with self._session() as session:
            row = session.get(PredictorRow, version)
            return None if row is None else row.body

    def predictor_versions(self) -> frozenset[str]:
        with self._session() as session:
            return frozenset(session.exec(select(PredictorRow.version)))

    def decisions(
        self,
        jobs: Sequence[str] | None = None,
        *,
        namespaces: Sequence[str] | None = None,
        limit: int,
    ) -> list[DecisionRow]:
        """The latest decisions, oldest first."""
        query = select(DecisionRow).order_by(col(DecisionRow.id).desc()).limit(limit)
        if jobs is not None:
            query = query.where(col(DecisionRow.job).in_(jobs))
        if namespaces is not None:
            starts = [
                col(DecisionRow.job).startswith(f"{name}/", autoescape=True) for name in namespaces
            ]
            query = query.where(_any(starts))
        with self._session() as session:
            return list(reversed(session.exec(query).all()))

    def verdicts(self, uid: str) -> list[VerdictRow]:
        """All verdicts of one job, oldest first."""
        query = select(VerdictRow).where(VerdictRow.uid == uid).order_by(col(VerdictRow.id))
        with self._session() as session:
            return list(session.exec(query))

    def jobs(self) -> list[JobRow]:
        """All jobs ever seen and not yet forgotten."""
        with self._session() as session:
            return list(session.exec(select(JobRow).order_by(col(JobRow.submitted_at))))

    def return_loans(self, nodes: Sequence[str], at: float) -> None:
        with self._session() as session:
            lent = select(LoanRow).where(
                col(LoanRow.node).in_(nodes), col(LoanRow.returned_at).is_(None)
            )
            for row in session.exec(lent):
                row.returned_at = at
            session.commit()

    def forget(self, *, cycles_before: int, ended_before: float) -> None:
        """Drop old cycles (up to a full snapshot), their decisions, and jobs that ended long ago."""
        with self._session() as session:
            start = self._full_at_or_before(session, cycles_before)
            session.exec(delete(CycleRow).where(col(CycleRow.cycle) < start))
            session.exec(delete(DecisionRow).where(col(DecisionRow.cycle) < start))
            used = select(CycleRow.predictor)
            session.exec(delete(PredictorRow).where(col(PredictorRow.version).not_in(used)))
            gone = select(JobRow.uid).where(col(JobRow.finished_at) < ended_before)
            session.exec(delete(VerdictRow).where(col(VerdictRow.uid).in_(gone)))
            session.exec(delete(JobRow).where(col(JobRow.finished_at) < ended_before))
            session.commit()

    @staticmethod
    def _full_at_or_before(session: Session, cycle: int) -> int:
        full = select(func.max(CycleRow.cycle)).where(CycleRow.full, CycleRow.cycle <= cycle)
        first = select(func.min(CycleRow.cycle))
        return session.exec(full).one() or session.exec(first).one() or 0

    @contextmanager
    def _session(self) -> Iterator[Session]:
        try:
            with Session(self.engine, expire_on_commit=False) as session:
                yield session
        except SQLAlchemyError as error:
            message = f"the store did not do it: {error}"
            raise StoreError(message) from error


def words(said: str) -> str:
    """Text that every database takes: no NUL, no lone surrogate, not without end."""
    clean = said.replace("\0", "\ufffd").encode(errors="replace").decode()
    return clean if len(clean) <= TEXT_LIMIT else clean[: TEXT_LIMIT - 1] + "\u2026"


def migrate(engine: Engine) -> None:
    """Bring the tables up to date; one process at a time on a shared database."""
    from alembic import command

    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text(f"select pg_advisory_xact_lock({MIGRATION_LOCK})"))
        command.upgrade(alembic_config(connection), "head")


def alembic_config(connection: Any) -> Any:
    """What alembic needs to know: where the migrations are, and the open connection."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _engine(url: str) -> Engine:
    where = make_url(url)
    if where.drivername in ("postgres", "postgresql"):
        where = where.set(drivername="postgresql+psycopg")
    if where.get_backend_name() != "sqlite":
        return create_engine(where, pool_pre_ping=True)
    if where.database:
        Path(where.database).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    engine = create_engine(where)
    event.listen(engine, "connect", _pragmas)
    return engine


def _pragmas(connection: Any, _record: object) -> None:
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


def _any(conditions: Sequence[Any]) -> Any:
    from sqlalchemy import false, or_

    return or_(false(), *conditions)
