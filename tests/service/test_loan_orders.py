"""POST /v1/loans: an inference scheduler says how many GPUs may be lent, and when they must be back."""

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from laxity_scheduler.http.tokens import Tokens, read_tokens
from laxity_scheduler.model.cluster import ClusterState, InferenceDemand, Node
from laxity_scheduler.service.loan_orders import LoanOrderError, LoanOrders
from laxity_scheduler.store.store import StaleServiceError, Store, StoreError
from laxity_scheduler.store.tables import LoanOrderRow
from tests.support.builders import SECRET, bearer
from tests.support.memory_world import MemoryWorld
from tests.support.services import Stage, staged, wait_until

FLEET, LENT = Node("own", 4, 4, pool="inference"), Node("lent", 4, 4, pool="loaned")
STATE = ClusterState(
    1_000.0, (FLEET, LENT), (), inference=InferenceDemand(1.0, 3.0, horizon_at=2_000.0)
)
NOW = 1_000.0
KNOWS, TENANT, OPERATOR = "k" * 20, "t" * 20, "o" * 20


def forget(row: LoanOrderRow) -> None:
    """A store that keeps nothing."""


def demand_after(*orders: dict[str, Any], state: ClusterState = STATE) -> InferenceDemand:
    said = LoanOrders(forget)
    for order in orders:
        said.add_order(order, state, NOW)
    demand = said.apply_to(state).inference
    assert demand is not None
    return demand


def test_a_loan_takes_the_place_of_the_forecast_and_a_reclaim_says_by_when() -> None:
    assert demand_after() == STATE.inference
    assert demand_after({"loan": 2}).forecast_gpus == 2.0
    back = demand_after({"loan": 2}, {"reclaim": 6, "by": "10m"})
    assert (back.forecast_gpus, back.reclaim_by) == (8.0, NOW + 600.0)
    assert demand_after({"reclaim": 4}).reclaim_by == NOW


def test_gpus_that_pods_wait_for_are_wanted_back_whatever_is_said() -> None:
    short = replace(STATE, inference=InferenceDemand(6.0, 6.0, reclaim_by=NOW))
    demand = demand_after({"loan": 4}, state=short)
    assert (demand.peak_gpus, demand.reclaim_by) == (6.0, NOW)


@pytest.mark.parametrize(
    ("order", "field", "words"),
    [
        pytest.param({"loan": -1}, "loan", "'-1' is no number of GPUs", id="negative"),
        pytest.param({"loan": 0}, "loan", "write 1 or more", id="nothing"),
        pytest.param({"loan": True}, "loan", "'True' is no number", id="a truth value"),
        pytest.param({"loan": 1.5}, "loan", "'1.5' is no number", id="a fraction"),
        pytest.param({"loan": float("nan")}, "loan", "'nan' is no number", id="NaN"),
        pytest.param({"loan": "4"}, "loan", "'4' is no number", id="text"),
        pytest.param({"loan": [1]}, "loan", "'[1]' is no number", id="a list"),
        pytest.param({"loan": None}, "loan", "'None' is no number", id="null"),
        pytest.param({"reclaim": 1, "by": 5}, "by", "5 of what?", id="no unit"),
        pytest.param({"reclaim": 1, "by": None}, "by", "'None' is no", id="null for an instant"),
        pytest.param({"reclaim": 1, "by": "-5m"}, "by", "'-5m' is no", id="a negative duration"),
        pytest.param({"loan": 5}, "loan", "at most 4 more", id="more than the fleet has"),
        pytest.param({"reclaim": 5}, "reclaim", "only 4 GPUs may be lent", id="more than is lent"),
        pytest.param({"reclaim": 1, "by": "1970-01-01T00:00Z"}, "by", "1000 s ago", id="the past"),
        pytest.param({"reclaim": 1, "by": "soon"}, "by", "'soon' is no", id="no instant"),
        pytest.param({"loan": 1, "by": "1h"}, "by", "a loan has no end", id="a loan with an end"),
        pytest.param({}, "loan", "say {", id="no order"),
        pytest.param({"loan": 1, "reclaim": 1}, "loan", "say {", id="both"),
        pytest.param({"loan": 1, "nodes": 2}, "nodes", "say {", id="an unknown field"),
    ],
)
def test_an_order_that_cannot_be_is_answered_with_what_would_do(
    order: dict[str, Any], field: str, words: str
) -> None:
    said = LoanOrders(forget)
    with pytest.raises(LoanOrderError, match=re.escape(words)) as caught:
        said.add_order(order, STATE, NOW)
    assert caught.value.field == field
    assert said.apply_to(STATE) is STATE, "and changes nothing"


def test_where_needs_are_not_seen_nothing_is_lent_until_the_fleet_says_how_much() -> None:
    orders = LoanOrders(forget, unsaid_gpus=0)
    unsaid = orders.apply_to(STATE).inference
    assert unsaid is not None
    assert unsaid.lendable_gpus(8) == 0.0
    orders.add_order({"loan": 2}, STATE, NOW)
    told = orders.apply_to(STATE).inference
    assert told is not None
    assert told.lendable_gpus(8) == 6.0, "two more than are lent"
    assert orders.withdraw(STATE)["allowed_gpus"] == 0
    assert orders.apply_to(STATE).inference == unsaid


class FleetWorld(MemoryWorld):
    """A world with an inference fleet of its own."""

    def observe(self) -> ClusterState:
        state = super().observe()
        demand = InferenceDemand(0.0, 4.0, horizon_at=time.time() + 600.0)
        return replace(state, nodes=(*state.nodes, FLEET, LENT), inference=demand)


def ask(stage: Stage, order: object, token: str = KNOWS) -> tuple[int, Any]:
    answer = stage.http.post("/v1/loans", json=order, headers=bearer(token))
    return answer.status_code, answer.json()


def tokens(path: Path) -> Tokens:
    path.write_text(f"{KNOWS} @loans\n{TENANT} team\n{OPERATOR} *\n")
    return Tokens(read_tokens(path), SECRET)


def test_a_token_for_loans_opens_this_call_and_no_jobs(tmp_path: Path) -> None:
    with staged(tmp_path, FleetWorld(1), tokens=tokens(tmp_path / "tokens")) as stage:
        wait_until(lambda: stage.service.leading, "the service to act")
        lent = ask(stage, {"loan": 1})
        back = ask(stage, {"reclaim": 5, "by": "5m"}, OPERATOR)
        wrong = ask(stage, {"loan": 99})
        tenants = ask(stage, {"loan": 1}, TENANT)
        jobs = stage.http.post(
            "/v1/jobs", json={"metadata": {"name": "a", "namespace": "team"}}, headers=bearer(KNOWS)
        )
    assert lent == (200, {"fleet_gpus": 8, "lent_gpus": 4, "allowed_gpus": 5})
    assert back == (200, {"fleet_gpus": 8, "lent_gpus": 4, "allowed_gpus": 0})
    assert (wrong[0], wrong[1]["error"]["field"]) == (422, "loan")
    assert (tenants[0], jobs.status_code) == (403, 403)
    assert "@loans" in json.dumps(tenants[1])


@pytest.mark.parametrize(
    "body", [b"[1]", b"7", b'"loan"', b"null", b"", b'{"loan": ', b'{"loan": NaN}']
)
def test_a_body_that_is_no_order_is_refused_and_changes_nothing(
    tmp_path: Path, body: bytes
) -> None:
    json_of = bearer(KNOWS) | {"Content-Type": "application/json"}
    with staged(tmp_path, FleetWorld(1), tokens=tokens(tmp_path / "tokens")) as stage:
        wait_until(lambda: stage.service.leading, "the service to act")
        answer = stage.http.post("/v1/loans", content=body, headers=json_of)
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid")
        assert stage.service.loan_orders.apply_to(STATE) is STATE


def test_without_a_token_of_this_service_no_order_is_taken(tmp_path: Path) -> None:
    with staged(tmp_path, FleetWorld(1), tokens=tokens(tmp_path / "tokens")) as stage:
        wait_until(lambda: stage.service.leading, "the service to act")
        answers = [
            stage.http.post("/v1/loans", json={"loan": 1}),
            stage.http.post("/v1/loans", json={"loan": 1}, headers=bearer("x" * 20)),
            stage.http.delete("/v1/loans", headers=bearer("x" * 20)),
        ]
        assert stage.service.loan_orders.apply_to(STATE) is STATE
    assert [answer.status_code for answer in answers] == [401] * 3


def test_where_no_node_is_labelled_nothing_can_be_lent(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(1), tokens=tokens(tmp_path / "tokens")) as stage:
        wait_until(lambda: stage.service.leading, "the service to act")
        status, answer = ask(stage, {"loan": 1})
    assert (status, answer["error"]["code"]) == (409, "no_fleet")


def test_an_order_is_in_the_store_before_it_is_answered_and_holds_after_a_restart(
    tmp_path: Path,
) -> None:
    with staged(tmp_path, FleetWorld(1), tokens=tokens(tmp_path / "tokens")) as stage:
        wait_until(lambda: stage.service.leading, "the service to act")
        ask(stage, {"reclaim": 3, "by": "1h"})
        row = stage.service.store.load_loan_order()
    assert row is not None
    assert row.allowed_gpus == 1
    with staged(tmp_path, FleetWorld(1), tokens=tokens(tmp_path / "tokens")) as again:
        state, _ = again.service.last_snapshot
        assert state.inference is not None
        assert (state.inference.forecast_gpus, state.inference.reclaim_by) == (7.0, row.reclaim_by)
        withdrawn = again.http.delete("/v1/loans", headers=bearer(KNOWS))
        wait_until(lambda: forecast_of(again) == 4.0, "the forecast to count again")
    assert withdrawn.json() == {"fleet_gpus": 8, "lent_gpus": 4, "allowed_gpus": None}
    with staged(tmp_path, FleetWorld(1), tokens=tokens(tmp_path / "tokens")) as last:
        assert forecast_of(last) == 4.0


def forecast_of(stage: Stage) -> float:
    demand = stage.service.last_snapshot[0].inference
    return -1.0 if demand is None else demand.forecast_gpus


def test_an_order_that_the_store_does_not_take_is_answered_with_503_and_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(row: object) -> None:
        raise StoreError("the store is away")

    with staged(tmp_path, FleetWorld(1), tokens=tokens(tmp_path / "tokens")) as stage:
        wait_until(lambda: stage.service.leading, "the service to act")
        monkeypatch.setattr(stage.service.loan_orders, "_save", fails)
        status, answer = ask(stage, {"loan": 1})
        assert (status, answer["error"]["code"]) == (503, "not_ready")
        assert stage.service.loan_orders.apply_to(STATE) is STATE


def test_an_order_of_a_leader_whose_term_is_over_does_not_count(tmp_path: Path) -> None:
    mine = Store.open(f"sqlite:///{tmp_path}/laxity.db")
    other = Store.open(f"sqlite:///{tmp_path}/laxity.db")
    mine.claim_term("a", NOW)
    other.claim_term("b", NOW)
    orders = LoanOrders(mine.save_loan_order)
    with pytest.raises(StaleServiceError, match="b leads"):
        orders.add_order({"loan": 1}, STATE, NOW)
    assert orders.apply_to(STATE) is STATE
    assert other.load_loan_order() is None
    mine.close()
    other.close()
