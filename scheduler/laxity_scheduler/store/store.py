"""The service's database: its journal, the verdicts it gave, and the jobs that ended.

The cluster is the truth about what runs; these tables hold what no cluster keeps: why something was
decided, what was promised, and how it came out. SQLite in WAL mode by default, PostgreSQL by URL;
alembic brings the tables of an older laxity up to date when a store is opened. But for `tables` and
`database`, which opens it, no other module on this floor knows SQLModel or SQLAlchemy.

One cycle is one transaction before it acts; its rows for people are a second one after it. The cycle's
number is the journal's primary key, so a second service that decides the same cycle is turned away
by the database before it has acted. Among replicas that elect a leader, only the one that began the
last term writes either.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from sqlalchemy import (
    Connection,
    Engine,
    Label,
    Update,
    func,
    insert,
    literal,
    text,
    union_all,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError
from sqlmodel import Session, col, delete, select

from laxity_profiler.history.history_database import (
    DATABASE_ERRORS,
    NO_DATABASE_URL,
    cause_of,
    create_database_engine,
    shown_address,
)
from laxity_scheduler.store.database import migrate_schema, set_checkpoint
from laxity_scheduler.store.tables import (
    CycleRow,
    DecisionRow,
    EndedLoans,
    FallbackRow,
    InferenceSlotRow,
    JobRow,
    LeaderRow,
    LoanOrderRow,
    LoanRow,
    NewRow,
    PendingRow,
    PolicyModelRow,
    PredictorRow,
    SavedView,
    ServiceTable,
    ShadowRow,
    VerdictRow,
    WaitingPointsRow,
)

Row = TypeVar("Row", bound=ServiceTable)
LEADER_LOCK: Final = 0x6C617870  # one replica acts


class StoreError(RuntimeError):
    """The database did not answer or refused: nothing was written of what was asked."""


class StaleServiceError(StoreError):
    """Another service has decided this cycle already: this one may not act on it."""


class Store:
    """An open database. Methods are safe to call from several threads; each is one transaction."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._leader: Connection | None = None
        self._holds = False
        self._term: int | None = None

    @classmethod
    def open(cls, url: str) -> Self:
        """Open and migrate `sqlite:///path` or `postgresql://user:password@host/name`."""
        try:
            engine = create_database_engine(url)
        except ArgumentError as error:  # its text may hold a password
            raise StoreError(NO_DATABASE_URL) from error
        from alembic.util import CommandError

        try:
            migrate_schema(engine)
        except CommandError as error:
            engine.dispose()
            where = shown_address(engine.url)
            message = f"the store at {where} is of another laxity, a newer one ({error})"
            raise StoreError(message) from error
        except DATABASE_ERRORS as error:
            engine.dispose()
            cause = cause_of(error, engine.url)
            message = f"the store at {shown_address(engine.url)} cannot be opened: {cause}"
            raise StoreError(message) from error
        return cls(engine)

    def close(self) -> None:
        if self._holds and self._leader is not None:
            with suppress(SQLAlchemyError):  # else the server lets go when it misses us
                self._leader.execute(text(f"select pg_advisory_unlock({LEADER_LOCK})"))
        self._release_leadership()
        self.engine.dispose()

    @property
    def is_exclusive(self) -> bool:
        """Whether no other replica can use this store."""
        return self.engine.dialect.name != "postgresql"

    def try_lead(self) -> bool:
        """Take the lead unless another replica has it; returns whether this process acts.

        On PostgreSQL a lock decides that ends with its connection. An SQLite file has one service,
        whose folder is locked.
        """
        if self.is_exclusive:
            return True
        try:
            if self._leader is None:
                self._leader = self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            query = text(f"select pg_try_advisory_lock({LEADER_LOCK})")
            if not self._holds:
                self._holds = bool(self._leader.execute(query).scalar_one())
            else:
                self._leader.execute(text("select 1"))
        except DATABASE_ERRORS as error:
            self._release_leadership()
            cause = cause_of(error, self.engine.url)
            raise StoreError(f"the store cannot say who leads: {cause}") from error
        return self._holds

    def _release_leadership(self) -> None:
        self._holds = False
        if self._leader is not None:
            self._leader.invalidate()
            self._leader.close()
            self._leader = None

    def claim_term(self, holder: str, since: float) -> int:
        """Begin a term and end all earlier ones: their holders can write no more cycles."""
        with self._open_session() as session:
            row = session.exec(select(LeaderRow).with_for_update()).one()
            row.term, row.holder, row.since = row.term + 1, holder, since
            session.commit()
        self._term = row.term
        return row.term

    def identity(self) -> str:
        """The same for all replicas on this database; a copy of an SQLite file has another one."""
        with self._open_session() as session:
            store_id = session.exec(select(LeaderRow.store)).one()
        file = self.engine.url.database if self.is_exclusive else None
        return f"{store_id}-{Path(file).stat().st_ino}" if file else store_id

    def check_connection(self) -> None:
        """StoreError if the database does not answer."""
        with self._open_session() as session:
            session.connection().execute(text("select 1"))

    def last_cycle(self) -> int:
        """The number of the last decided cycle, 0 before the first."""
        with self._open_session() as session:
            return session.exec(select(func.max(CycleRow.cycle))).one() or 0

    def last_cycle_at(self) -> float | None:
        """When the last cycle was decided; None before the first."""
        query = select(CycleRow.at).order_by(col(CycleRow.cycle).desc()).limit(1)
        with self._open_session() as session:
            return session.exec(query).one_or_none()

    def last_plan(self) -> bytes:
        """What was decided in the last cycle, b"" before the first."""
        query = select(CycleRow.plan).order_by(col(CycleRow.cycle).desc()).limit(1)
        with self._open_session() as session:
            return session.exec(query).one_or_none() or b""

    def last_audited_cycle(self) -> int:
        """The last cycle whose decisions have rows for people, 0 before the first."""
        with self._open_session() as session:
            return session.exec(select(func.max(DecisionRow.cycle))).one() or 0

    def write_rows(
        self, rows: Iterable[ServiceTable | PendingRow], jobs: Iterable[SavedView] = ()
    ) -> None:
        """Write new rows, and jobs as they are now, all or nothing."""
        all_rows = list(rows)
        new = [row for row in all_rows if isinstance(row, ServiceTable)]
        fresh = [row for row in all_rows if isinstance(row, NewRow)]
        cycles = any(isinstance(row, CycleRow) for row in new)
        with self._open_session() as session:
            set_checkpoint(session.connection(), checkpoint=cycles)
            if cycles or fresh:
                self._check_term(session)
            session.add_all(new)
            try:
                session.flush()
                _insert_rows(session.connection(), fresh)
                for row in all_rows:
                    if isinstance(row, EndedLoans):
                        session.exec(_end_loans(row))
                _upsert_jobs(session.connection(), [job._asdict() for job in jobs])
                session.commit()
            except IntegrityError as error:
                if not cycles:
                    raise
                message = f"this cycle was decided by another service: {error.orig}"
                raise StaleServiceError(message) from error

    def _check_term(self, session: Session) -> None:
        """Raise StaleServiceError if the term is over. A claim of a new term waits for this transaction."""
        if self._term is None:
            return
        row = session.exec(select(LeaderRow).with_for_update(read=True)).one()
        if row.term != self._term:
            message = f"term {self._term} is over: {row.holder} leads in term {row.term}"
            raise StaleServiceError(message)

    def iter_cycles(
        self, first: int, last: int | None = None, *, full: bool = False
    ) -> Iterator[CycleRow]:
        """Journalled cycles from the full snapshot at or before `first`, in order; or `full` ones only."""
        with self._open_session() as session:
            start = self._full_at_or_before(session, first)
            query = select(CycleRow).where(CycleRow.cycle >= start).order_by(col(CycleRow.cycle))
            if last is not None:
                query = query.where(CycleRow.cycle <= last)
            if full:
                query = query.where(CycleRow.full)
            yield from session.exec(query.execution_options(yield_per=100))

    def predictor_body(self, version: str) -> bytes | None:
        row = self.load_row(PredictorRow, version)
        return None if row is None else row.body

    def predictor_versions(self) -> frozenset[str]:
        with self._open_session() as session:
            return frozenset(session.exec(select(PredictorRow.version)))

    def latest_decisions(
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
            query = query.where(_any_of(starts))
        with self._open_session() as session:
            return list(reversed(session.exec(query).all()))

    def load_row(self, table: type[Row], key: str | int) -> Row | None:
        """The row of a table with this key, if there is one."""
        with self._open_session() as session:
            return session.get(table, key)

    def load_policy_models(self, version: str) -> list[bytes]:
        """The files of `models:/NAME/VERSION`, whichever MLflow they were fetched from."""
        key = col(PolicyModelRow.version)
        same = (key == version) | key.endswith(f" {version}", autoescape=True)
        with self._open_session() as session:
            return list(session.exec(select(PolicyModelRow.body).where(same)))

    def replace_rows(self, rows: Iterable[ServiceTable]) -> None:
        """Write rows in place of those with the same keys, all or nothing; any replica may."""
        with self._open_session() as session:
            for row in rows:
                session.merge(row)
            session.commit()

    def load_fallback_policies(self) -> frozenset[str]:
        """Names of the learned policies that fell back."""
        with self._open_session() as session:
            return frozenset(session.exec(select(FallbackRow.policy)))

    def load_jobs(self) -> list[JobRow]:
        """All jobs ever seen and not yet forgotten."""
        with self._open_session() as session:
            return list(session.exec(select(JobRow).order_by(col(JobRow.submitted_at))))

    def save_inference_slots(self, rows: Iterable[InferenceSlotRow], *, first: int) -> None:
        """Write slots of inference's need, new or changed, and drop those before `first`."""
        with self._open_session() as session:
            self._check_term(session)
            for row in rows:
                session.merge(row)
            session.exec(delete(InferenceSlotRow).where(col(InferenceSlotRow.slot) < first))
            session.commit()

    def load_inference_slots(self) -> list[InferenceSlotRow]:
        """What inference needed, oldest slot first."""
        with self._open_session() as session:
            return list(session.exec(select(InferenceSlotRow).order_by(col(InferenceSlotRow.slot))))

    def save_loan_order(self, row: LoanOrderRow) -> None:
        """Write the order that counts from now on in place of the one before."""
        with self._open_session() as session:
            self._check_term(session)
            session.merge(row)
            session.commit()

    def load_loan_order(self) -> LoanOrderRow | None:
        with self._open_session() as session:
            return session.exec(select(LoanOrderRow)).one_or_none()

    def save_rows(self, rows: Iterable[NewRow]) -> None:
        """Write rows that any replica may."""
        with self._open_session() as session:
            _insert_rows(session.connection(), rows)
            session.commit()

    def load_rows(self, table: type[Row]) -> list[Row]:
        """All rows of a table."""
        with self._open_session() as session:
            return list(session.exec(select(table)))

    def drop_waiting_points(self, ids: Sequence[str]) -> None:
        """Drop points that MLflow has; any replica may."""
        with self._open_session() as session:
            session.exec(delete(WaitingPointsRow).where(col(WaitingPointsRow.id).in_(ids)))
            session.commit()

    def delete_old(self, *, cycles_before: int, ended_before: float) -> None:
        """Drop old cycles (up to a full snapshot), their decisions, and jobs that ended long ago."""
        with self._open_session() as session:
            start = self._full_at_or_before(session, cycles_before)
            session.exec(delete(CycleRow).where(col(CycleRow.cycle) < start))
            session.exec(delete(DecisionRow).where(col(DecisionRow.cycle) < start))
            session.exec(delete(ShadowRow).where(col(ShadowRow.cycle) < start))
            used = select(CycleRow.predictor)
            session.exec(delete(PredictorRow).where(col(PredictorRow.version).not_in(used)))
            gone = select(JobRow.uid).where(col(JobRow.finished_at) < ended_before)
            for table in (VerdictRow, WaitingPointsRow):
                session.exec(delete(table).where(col(table.uid).in_(gone)))
            session.exec(delete(JobRow).where(col(JobRow.finished_at) < ended_before))
            session.commit()

    def oldest_cycle_within(self, kept_bytes: int) -> int:
        """The oldest of the latest cycles that take up to so many bytes with their decisions; 0 for none."""
        cycles = select(CycleRow.cycle, _stored_bytes(CycleRow.state, CycleRow.plan))
        decisions = select(DecisionRow.cycle, _stored_bytes(DecisionRow.body, DecisionRow.reason))
        rows = union_all(cycles, decisions).subquery()
        latest_first = rows.c.cycle.desc()
        sums = select(
            rows.c.cycle, func.sum(rows.c.bytes).over(order_by=latest_first).label("bytes")
        ).subquery()
        query = select(func.min(sums.c.cycle)).where(sums.c.bytes <= kept_bytes)
        with self._open_session() as session:
            return session.exec(query).one() or 0

    @staticmethod
    def _full_at_or_before(session: Session, cycle: int) -> int:
        full = select(func.max(CycleRow.cycle)).where(CycleRow.full, CycleRow.cycle <= cycle)
        first = select(func.min(CycleRow.cycle))
        return session.exec(full).one() or session.exec(first).one() or 0

    @contextmanager
    def _open_session(self) -> Iterator[Session]:
        try:
            with Session(self.engine, expire_on_commit=False) as session:
                yield session
        except DATABASE_ERRORS as error:
            cause = cause_of(error, self.engine.url)
            raise StoreError(f"the store did not do it: {cause}") from error


def _stored_bytes(*columns: Any) -> Label[int]:
    return sum((func.length(column) for column in columns), literal(0)).label("bytes")


def _insert_rows(connection: Connection, rows: Iterable[NewRow]) -> None:
    """Insert all rows of a table in one driver call.

    SQLAlchemy would process each value again, which takes as long as the insertion itself.
    """
    by_table: defaultdict[type[ServiceTable], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_table[row.table].append(row.values)
    for table, values in by_table.items():
        columns = tuple(values[0])
        statement = insert(table).compile(dialect=connection.dialect, column_keys=columns)
        if statement.positional:
            assert statement.positiontup is not None  # noqa: S101 - what positional means
            pick = itemgetter(*statement.positiontup)
            connection.exec_driver_sql(str(statement), [pick(row) for row in values])
        else:
            connection.exec_driver_sql(str(statement), values)


def _end_loans(loans: EndedLoans) -> Update:
    lent = col(LoanRow.node).in_(loans.nodes), col(LoanRow.returned_at).is_(None)
    before = col(LoanRow.taken_at) <= loans.returned_at
    return update(LoanRow).where(*lent, before).values(returned_at=loans.returned_at)


def _upsert_jobs(connection: Connection, jobs: Sequence[dict[str, Any]]) -> None:
    """Insert jobs, or update those that are there, in one statement."""
    if not jobs:
        return
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    new = dialect.insert(JobRow)
    changed = {name: new.excluded[name] for name in jobs[0] if name != "uid"}
    connection.execute(new.on_conflict_do_update(index_elements=["uid"], set_=changed), jobs)


def _any_of(conditions: Sequence[Any]) -> Any:
    from sqlalchemy import false, or_

    return or_(false(), *conditions)
