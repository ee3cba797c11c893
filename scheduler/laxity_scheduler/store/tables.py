"""The tables of the service's database, and the text that they can hold."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import BigInteger, Dialect, LargeBinary, MetaData, TypeDecorator
from sqlalchemy.orm import registry
from sqlmodel import Field, SQLModel

VERSION_TABLE: Final = "laxity_schema"
TEXT_LIMIT: Final = 8_000
_NAMES: Final = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
}


class ServiceTable(SQLModel, registry=registry(metadata=MetaData(naming_convention=_NAMES))):
    """Tables of this floor; apart from those of other floors in the same database."""


@dataclass(frozen=True, slots=True)
class NewRow:
    """A row to insert, as plain values: an ORM object costs twenty times as much."""

    table: type[ServiceTable]
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class EndedLoans:
    """Lent nodes that go back at `returned_at`: their loans taken before it end."""

    nodes: Sequence[str]
    returned_at: float


PendingRow = NewRow | EndedLoans


class CompressedBytes(TypeDecorator[bytes]):
    """Bytes that the database holds compressed: of a plan that lets 2,000 jobs wait, a fortieth.

    What is not compressed, as an earlier laxity wrote it, or is damaged, is read as it stands.
    """

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: bytes | None, dialect: Dialect) -> bytes | None:
        return None if value is None else zlib.compress(value, level=1)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> bytes | None:
        try:
            return None if value is None else zlib.decompress(value)
        except zlib.error:
            return value


class CycleRow(ServiceTable, table=True):
    """One decided cycle: the snapshot (whole, or what changed) and the plan, as codec bytes.

    `version` is the laxity that decided it, "" before laxity wrote that down.
    """

    __tablename__ = "cycles"

    cycle: int = Field(
        primary_key=True, sa_type=BigInteger, sa_column_kwargs={"autoincrement": False}
    )
    at: float
    policy: str
    predictor: str = Field(index=True)
    full: bool = Field(index=True)
    state: bytes = Field(sa_type=CompressedBytes)
    plan: bytes = Field(sa_type=CompressedBytes)
    decided_s: float
    version: str = Field(default="", sa_column_kwargs={"server_default": ""})


class PredictorRow(ServiceTable, table=True):
    """The parameters of one predictor version, compressed."""

    __tablename__ = "predictors"

    version: str = Field(primary_key=True)
    at: float
    body: bytes


class DecisionRow(ServiceTable, table=True):
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


class VerdictRow(ServiceTable, table=True):
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


class JobRow(ServiceTable, table=True):
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


class SavedView(NamedTuple):
    """A JobRow to write: an ORM object costs as much as the rest of a cycle."""

    uid: str
    job: str
    namespace: str
    state: str
    outcome: str
    submitted_at: float
    finished_at: float | None
    view: bytes


class GroupRow(ServiceTable, table=True):
    """Jobs with one deadline: a workflow or a sweep. `id` is "namespace/name", no deadline infinity.

    `workflow` names what is run again and again; `body` is JSON of its steps and its verdict.
    """

    __tablename__ = "groups"

    id: str = Field(primary_key=True)
    namespace: str = Field(index=True)
    workflow: str = Field(index=True)
    state: str = Field(index=True)
    service_class: str
    deadline_at: float
    submitted_at: float
    finished_at: float | None = None
    body: bytes


class LoanRow(ServiceTable, table=True):
    """An inference node lent to training, until it is handed back."""

    __tablename__ = "loans"

    id: int | None = Field(default=None, primary_key=True)
    node: str = Field(index=True)
    cycle: int = Field(sa_type=BigInteger)
    taken_at: float
    returned_at: float | None = None


class InferenceSlotRow(ServiceTable, table=True):
    """What inference needed at most in a slot, numbered since the epoch, and what was forecast.

    No forecast: nobody looked in the slot before.
    """

    __tablename__ = "inference_slots"

    slot: int = Field(
        primary_key=True, sa_type=BigInteger, sa_column_kwargs={"autoincrement": False}
    )
    needed_gpus: float
    forecast_gpus: float | None = None


class PoolArrivalRow(ServiceTable, table=True):
    """Nodes of a pool that came `seconds` after the start that they came for."""

    __tablename__ = "pool_arrivals"

    id: int | None = Field(default=None, primary_key=True)
    pool: str
    at: float
    seconds: float


class LoanOrderRow(ServiceTable, table=True):
    """The only row says how many GPUs may be lent in all; none: the forecast counts.

    `reclaim_by` is when others must be back, infinity if none have to.
    """

    __tablename__ = "loan_orders"

    id: int = Field(default=1, primary_key=True, sa_column_kwargs={"autoincrement": False})
    allowed_gpus: int | None
    reclaim_by: float


class LeaderRow(ServiceTable, table=True):
    """The only row says whose turn it is; a new term ends all earlier ones.

    `store` is the random id of this database.
    """

    __tablename__ = "leader"

    id: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    term: int = Field(sa_type=BigInteger)
    holder: str
    since: float
    store: str = Field(default="", sa_column_kwargs={"server_default": ""})


class FallbackRow(ServiceTable, table=True):
    """A learned policy, by the digest of its weights, in whose place its teacher decides."""

    __tablename__ = "fallbacks"

    digest: str = Field(primary_key=True)
    policy: str
    at: float
    reason: str


class PolicyModelRow(ServiceTable, table=True):
    """The file of `models:/NAME/VERSION` as it was fetched from MLflow's registry."""

    __tablename__ = "policy_models"

    version: str = Field(primary_key=True)
    body: bytes


class PolicyAliasRow(ServiceTable, table=True):
    """The version that `models:/NAME@ALIAS` named when MLflow last answered."""

    __tablename__ = "policy_aliases"

    alias: str = Field(primary_key=True)
    version: str


class WaitingPointsRow(ServiceTable, table=True):
    """Points of one job, as JSON, that MLflow does not have yet."""

    __tablename__ = "waiting_points"

    id: str = Field(primary_key=True)
    uid: str = Field(index=True)
    body: bytes


def storable_text(text: str) -> str:
    """The text as every database takes it: no NUL, no lone surrogate, at most TEXT_LIMIT long."""
    if len(text) <= TEXT_LIMIT and text.isascii() and "\0" not in text:
        return text
    clean = text.replace("\0", "\ufffd").encode(errors="replace").decode()
    return clean if len(clean) <= TEXT_LIMIT else clean[: TEXT_LIMIT - 1] + "\u2026"
