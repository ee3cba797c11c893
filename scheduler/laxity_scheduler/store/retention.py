"""Which of the store's rows go: old cycles with their decisions, and jobs that ended long ago."""

from typing import Any

from sqlalchemy import Label, func, literal, union_all
from sqlmodel import Session, col, delete, select

from laxity_scheduler.store.tables import (
    CycleRow,
    DecisionRow,
    GroupRow,
    JobRow,
    PredictorRow,
    VerdictRow,
    WaitingPointsRow,
)


def delete_old(session: Session, *, cycles_before: int, ended_before: float) -> None:
    """Drop old cycles (up to a full snapshot), their decisions, jobs and groups that ended long ago.

    The last finished run of each workflow stays: its steps are those of the next run.
    """
    start = full_at_or_before(session, cycles_before)
    session.exec(delete(CycleRow).where(col(CycleRow.cycle) < start))
    session.exec(delete(DecisionRow).where(col(DecisionRow.cycle) < start))
    used = select(CycleRow.predictor)
    session.exec(delete(PredictorRow).where(col(PredictorRow.version).not_in(used)))
    gone = select(JobRow.uid).where(col(JobRow.finished_at) < ended_before)
    for table in (VerdictRow, WaitingPointsRow):
        session.exec(delete(table).where(col(table.uid).in_(gone)))
    session.exec(delete(JobRow).where(col(JobRow.finished_at) < ended_before))
    last_runs = (
        select(func.max(GroupRow.submitted_at))
        .where(GroupRow.state == "finished")
        .group_by(col(GroupRow.namespace), col(GroupRow.workflow))
    )
    session.exec(
        delete(GroupRow)
        .where(func.coalesce(GroupRow.finished_at, GroupRow.submitted_at) < ended_before)
        .where(col(GroupRow.state) != "active", col(GroupRow.submitted_at).not_in(last_runs))
    )


def oldest_cycle_within(session: Session, kept_bytes: int) -> int:
    """The oldest of the latest cycles that take up to so many bytes with their decisions; 0 for none."""
    cycles = select(CycleRow.cycle, _stored_bytes(CycleRow.state, CycleRow.plan))
    decisions = select(DecisionRow.cycle, _stored_bytes(DecisionRow.body, DecisionRow.reason))
    rows = union_all(cycles, decisions).subquery()
    latest_first = rows.c.cycle.desc()
    sums = select(
        rows.c.cycle, func.sum(rows.c.bytes).over(order_by=latest_first).label("bytes")
    ).subquery()
    query = select(func.min(sums.c.cycle)).where(sums.c.bytes <= kept_bytes)
    return session.exec(query).one() or 0


def full_at_or_before(session: Session, cycle: int) -> int:
    """The latest cycle up to this one whose snapshot is stored whole."""
    full = select(func.max(CycleRow.cycle)).where(CycleRow.full, CycleRow.cycle <= cycle)
    first = select(func.min(CycleRow.cycle))
    return session.exec(full).one() or session.exec(first).one() or 0


def _stored_bytes(*columns: Any) -> Label[int]:
    return sum((func.length(column) for column in columns), literal(0)).label("bytes")
