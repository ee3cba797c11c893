"""What people see of loans: figures for Prometheus, and one line of `laxity cluster`."""

from dataclasses import replace

import pytest

from laxity.cli.render.top import cluster_line, forecast_line
from laxity_scheduler.loans.demand_history import DemandHistory
from laxity_scheduler.loans.inference_waits import InferencePod, InferenceWaits
from laxity_scheduler.model.cluster import ClusterState, InferenceDemand, Node
from laxity_scheduler.model.decision import Preempt, Reclaim
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan
from laxity_scheduler.service.exported.loan_metrics import loan_view
from laxity_scheduler.service.exported.metrics import Metrics

NODES = (Node("own", 4, 0, pool="inference"), Node("lent", 4, 4, pool="loaned"))
STOPS = Preempt("team/a", "now", "", reason("leave_lent_node", node="lent", gpus=4, due_at=0.0))
BACK = Reclaim(("lent",), reason("hand_back", gpus=4, due_at=0.0, nodes=1))


def fleet(now: float, needed: float) -> ClusterState:
    return ClusterState(now, NODES, (), inference=InferenceDemand(needed, horizon_at=now + 60.0))


def exposition(metrics: Metrics) -> list[str]:
    return metrics.exposition().decode().splitlines()


def test_gpus_that_are_lent_wanted_back_and_lacking_are_told() -> None:
    metrics = Metrics()
    metrics.loans.record(fleet(0.0, 6.0), Plan(), DemandHistory())
    lines = exposition(metrics)
    assert "laxity_lent_gpus 4.0" in lines
    assert "laxity_lent_gpus_wanted_back 2.0" in lines
    assert "laxity_inference_gpus_short 2.0" in lines


def test_a_return_takes_as_long_as_its_gpus_were_wanted_and_each_stopped_job_counts_once() -> None:
    metrics = Metrics()
    metrics.loans.record(fleet(0.0, 3.0), Plan(), DemandHistory())
    for now in (100.0, 101.0):
        metrics.loans.record(fleet(now, 6.0), Plan((STOPS,)), DemandHistory())
    metrics.loans.record(fleet(130.0, 6.0), Plan((BACK,)), DemandHistory())
    lines = exposition(metrics)
    assert "laxity_reclaim_seconds_sum 30.0" in lines
    assert "laxity_nodes_reclaimed_total 1.0" in lines
    assert "laxity_reclaim_preemptions_total 1.0" in lines


def test_a_cluster_that_lends_nothing_says_nothing_of_loans() -> None:
    state = replace(fleet(0.0, 6.0), inference=None)
    assert loan_view(state, DemandHistory()) is None
    assert "inference" not in cluster_line({"loans": loan_view(state, DemandHistory())}).plain


@pytest.mark.parametrize(
    ("needed", "words"),
    [
        pytest.param(1.0, "4 of 8 inference GPUs lent   ", id="there is room"),
        pytest.param(6.0, "4 of 8 inference GPUs lent, 2 wanted back", id="it grows"),
    ],
)
def test_the_cluster_is_shown_with_what_is_lent_and_wanted_back(needed: float, words: str) -> None:
    assert words in cluster_line({"loans": loan_view(fleet(0.0, needed), DemandHistory())}).plain


def test_a_demand_that_does_not_fit_the_fleet_is_told_with_how_it_is_read() -> None:
    view = loan_view(fleet(0.0, 99.0), DemandHistory())
    assert view is not None
    assert view["problems"] == ["inference needs 99 GPUs and has 8: all are kept for it"]


def test_how_often_the_forecast_held_is_counted_all_along_and_shown() -> None:
    history, metrics, state = DemandHistory(), Metrics(), fleet(0.0, 1.0)
    assert not forecast_line({"loans": loan_view(state, history)})
    for slot, gpus in enumerate((1.0, 1.0, 2.0, 9.0, 1.0)):
        history.add(gpus, slot * history.method.slot_s)
        history.forecast_gpus(1)
    metrics.loans.record(state, Plan(), history)
    line = forecast_line({"loans": loan_view(state, history)}).plain
    assert line.endswith("no more than its forecast in 67% of 3 slots of 10 minutes")
    (gauge,) = [row for row in exposition(metrics) if row.startswith("laxity_inference_forecast")]
    assert float(gauge.split()[1]) == pytest.approx(2 / 3)


def test_waits_of_inference_pods_are_told_those_that_ended_once_and_by_the_leader() -> None:
    metrics, waits = Metrics(), InferenceWaits()
    waits.update_group("a", [InferencePod("x", 100.0, 107.0), InferencePod("y", 100.0, None)])
    metrics.loans.record_waits(waits, 130.0, counted=True)
    metrics.loans.record_waits(waits, 140.0, counted=True)
    waits.update_group("b", [InferencePod("z", 100.0, 190.0)])
    metrics.loans.record_waits(waits, 190.0, counted=False)
    lines = exposition(metrics)
    assert "laxity_inference_wait_seconds_count 1.0" in lines
    assert "laxity_inference_wait_seconds_sum 7.0" in lines
    assert "laxity_inference_pods_waiting 1.0" in lines
    assert "laxity_inference_longest_wait_seconds 90.0" in lines
