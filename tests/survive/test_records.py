"""What people read of a decision is what the journal has of it, and what the job was told."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Admit, Forecasted, Promised, Refuse, Wait, verdict_after
from laxity_scheduler.model.job import Forecast, Promise, Refusal
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan
from laxity_scheduler.store import codec
from laxity_scheduler.store.audit_rows import AuditRows, JournalledPlan
from laxity_scheduler.store.tables import DecisionRow, NewRow, VerdictRow
from tests.support.builders import cluster, job
from tests.support.random_values import Maker

FITS = reason("fits", p90_at=90.0, slack_s=10.0, workers=1)
OLD = Promise(deadline_at=80.0, p50_at=20.0, p90_at=30.0, runs=((30.0, 1),), reason=FITS)


def told(kind: str, seed: int) -> Promised | Forecasted | Refuse:
    """A decision of this kind about job "a", its verdict of wild numbers."""
    maker = Maker(seed)
    if kind == "promise":
        return Promised("team/a", maker.record(Promise, reason=FITS), FITS)
    if kind == "forecast":
        return Forecasted("team/a", maker.record(Forecast, reason=FITS), FITS)
    return Refuse("team/a", maker.record(Refusal, reason=FITS), FITS)


def owed(records: AuditRows, state: ClusterState, plan: Plan, **undone: str) -> list[NewRow]:
    """What is owed once this plan is in the journal; `undone`: why, by the names of jobs."""
    refused = {f"team/{name}": why for name, why in undone.items()}
    records.add_plan(
        JournalledPlan(
            state, plan, codec.encode_plan(plan), lambda: {"team/a": "uid-a"}, lambda: refused
        )
    )
    return [row for row in records.pending_rows() if isinstance(row, NewRow)]


@pytest.mark.parametrize("kind", ["promise", "forecast", "refusal"])
@pytest.mark.parametrize("old", [None, OLD], ids=["new", "promised before"])
@given(seed=st.integers(0, 2**32))
def test_a_row_holds_the_bytes_of_the_decision_and_of_the_verdict_it_came_to(
    kind: str, old: Promise | None, seed: int
) -> None:
    state = cluster(jobs=[job("a", verdict=old)], now=40.0)
    said = told(kind, seed)
    plan = Plan((said, Admit("team/a", 1, ("node-0",), FITS)))
    rows = owed(AuditRows(), state, plan)
    assert [row.table for row in rows] == [DecisionRow, VerdictRow, DecisionRow]
    assert [row.values["body"] for row in rows if row.table is DecisionRow] == [
        orjson.dumps(codec.decision_json(one)) for one in plan.decisions
    ]
    verdict = verdict_after(state.by_id["team/a"], said, state.now)
    assert rows[1].values["body"] == orjson.dumps(codec.verdict_json(verdict))
    assert rows[1].values["uid"] == "uid-a"


def test_what_was_said_before_is_no_row_again() -> None:
    state = cluster(jobs=[job("a")], now=40.0)
    plan, records = Plan((told("promise", 1),)), AuditRows()
    first = owed(records, state, plan)
    records.mark_flushed()
    again = owed(records, state, plan)
    assert first
    assert again == list[NewRow]()


def test_a_wait_is_a_row_again_for_another_reason_not_for_another_start() -> None:
    state, records = cluster(jobs=[job("a")], now=40.0), AuditRows()
    aged = reason("aged", waited_s=9.0, limit_s=8.0)
    waits = [
        Wait("team/a", FITS, held_by=("team/b",), expected_start_at=60.0),
        Wait("team/a", FITS, held_by=("team/c",), expected_start_at=900.0),
        Wait("team/a", aged, held_by=("team/c",), expected_start_at=900.0),
    ]
    rows = []
    for wait in waits:
        rows.append(len(owed(records, state, Plan((wait,)))))
        records.mark_flushed()
    assert rows == [1, 0, 1]


def test_a_reason_that_comes_back_is_a_row_again_only_after_a_start() -> None:
    state, records = cluster(jobs=[job("a")], now=40.0), AuditRows()
    full, held = Wait("team/a", FITS), Wait("team/a", reason("held_for_promises", holders="team/b"))
    started = Admit("team/a", 1, ("n0",), FITS)

    rows = []
    for decision in (full, held, full, held, started, full):
        rows.append(len(owed(records, state, Plan((decision,)))))
        records.mark_flushed()

    assert rows == [1, 1, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("finish_at", "rows"), [(240.0, 0), (259.0, 0), (262.0, 2), (218.0, 2), (float("inf"), 2)]
)
def test_a_forecast_is_a_row_again_where_it_moved_by_a_tenth_of_what_is_left(
    finish_at: float, rows: int
) -> None:
    state, records = cluster(jobs=[job("a")], now=40.0), AuditRows()
    for at, written in ((240.0, 2), (finish_at, rows)):
        said = Forecasted("team/a", Forecast(at - 10.0, at, 0.0, FITS), FITS)
        assert len(owed(records, state, Plan((said,)))) == written
        records.mark_flushed()


def test_what_the_store_did_not_take_is_owed_with_what_comes_after_it() -> None:
    state = cluster(jobs=[job("a"), job("b")], now=40.0)
    refused = Refuse("team/b", Maker(2).record(Refusal, reason=FITS), FITS)
    records = AuditRows()
    first = list(owed(records, state, Plan((told("promise", 1),))))
    both = owed(records, state, Plan((told("promise", 1), refused)))
    assert [row.values["job"] for row in both] == ["team/a", "team/a", "team/b", "team/b"]
    assert both[: len(first)] == first


def test_what_could_not_be_carried_out_is_told_once_and_once_more_when_it_is_done() -> None:
    state, without = cluster(jobs=[job("a")], now=40.0), cluster(jobs=[], now=50.0)
    plan, records = Plan((told("promise", 1), Admit("team/a", 1, ("node-0",), FITS))), AuditRows()
    rows: list[list[tuple[str, str]]] = []
    for seen, undone in (
        (state, {"a": ""}),  # the API server may have started a moment ago
        (state, {"a": "no rights in team"}),
        (without, {}),
        (state, {"a": "no rights in team"}),
        (state, {}),
        (state, {}),
    ):
        made = owed(records, seen, plan if seen is state else Plan(), **undone)
        rows.append(
            [
                (row.values["kind"], row.values["reason_code"])
                for row in made
                if row.table is DecisionRow
            ]
        )
        records.mark_flushed()
    assert rows == [
        [],
        [("undone", "patch_refused")],
        [],
        [],
        [("promised", "fits"), ("admit", "fits")],
        [],
    ]
