"""A job on a lent node that somebody else has labelled inference again leaves it."""

from dataclasses import replace

from laxity_scheduler.inflight import follow_ups
from laxity_scheduler.model.cluster import ClusterState, InferenceDemand, Node
from laxity_scheduler.model.decision import Preempt
from tests.support.builders import job

NODES = (Node("own", 4, 4), Node("taken", 4, 3, pool="inference"))
DEMAND = InferenceDemand(4.0)


def state(**changes: object) -> ClusterState:
    row = replace(job(workers=(2,), running=2, nodes=("own", "taken")), **changes)  # type: ignore[arg-type]
    return ClusterState(100.0, NODES, (row,), inference=DEMAND)


def test_it_stops_at_its_epochs_end_to_start_elsewhere() -> None:
    (stop,) = follow_ups(state())
    assert isinstance(stop, Preempt)
    assert (stop.at, stop.beneficiary, stop.reason.code) == ("epoch", stop.job, "node_taken_back")
    assert "labelled inference while it was lent" in stop.reason.text


def test_it_is_asked_once_and_not_if_it_must_not_be_stopped() -> None:
    assert follow_ups(state(stop_requested_at=90.0)) == ()
    assert follow_ups(state(preemptible=False)) == ()


def test_where_nothing_is_lent_a_job_on_such_a_node_is_let_be() -> None:
    assert follow_ups(replace(state(), inference=None)) == ()
