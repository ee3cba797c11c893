"""What inference needs of labelled nodes, as its pods show it."""

from typing import Any

import pytest

from laxity.instants import instant_at
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.node_rows.pool_label import POOL
from laxity_scheduler.model.cluster import InferenceDemand
from tests.support.manifests import job, node, pod
from tests.support.seen_nodes import NOW, Seen

FLEET: Json = {"labels": {POOL: "inference"}}
LENT: Json = {"labels": {POOL: "loaned"}}
TOLERATES: Json = {"tolerations": [{"key": "fleet", "operator": "Exists"}]}


def serving(name: str, on: str = "", *, gpus: int = 1, **spec: Any) -> Json:
    """A pod of nobody's Job."""
    made = pod(None, of=name, node=on, phase="Running" if on else "Pending")
    made["metadata"].pop("ownerReferences")
    made["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = str(gpus)
    made["spec"] |= spec
    return made


def demand(*things: Json) -> InferenceDemand:
    state = Seen(*things).look()
    assert state.inference is not None
    return state.inference


def test_a_cluster_without_labelled_nodes_has_no_demand() -> None:
    assert Seen(serving("a-pod", "a")).look().inference is None


def test_pods_on_the_fleet_need_their_gpus_whether_the_node_is_lent_or_not() -> None:
    fleet = (node("own", **FLEET), node("lent", **LENT))
    here = (serving("one", "own", gpus=2), serving("two", "lent"), serving("other", "a", gpus=3))
    assert demand(*fleet, *here).needed_gpus == 3


def test_pods_of_laxity_and_pods_that_are_over_need_nothing_of_the_fleet() -> None:
    mine = pod(0, node="lent")
    ended = serving("ended", "own")
    ended["status"]["phase"] = "Succeeded"
    there = (node("own", **FLEET), node("lent", **LENT), job(suspend=False), mine, ended)
    assert demand(*there).needed_gpus == 0


@pytest.mark.parametrize(
    ("spec", "gpus"),
    [
        pytest.param({}, 0, id="it may go anywhere else"),
        pytest.param(
            {"nodeSelector": {POOL: "inference"}}, 2, id="it names the fleet by its label"
        ),
        pytest.param({"nodeSelector": {"gpu": "t4"}}, 2, id="it names a label of the fleet alone"),
        pytest.param({"nodeSelector": {"gpu": "h100"}}, 0, id="it can go nowhere"),
        pytest.param(TOLERATES, 0, id="it tolerates what keeps others out, and may go elsewhere"),
    ],
)
def test_pods_that_wait_count_if_they_can_go_nowhere_but_to_the_fleet(
    spec: Json, gpus: int
) -> None:
    fleet = node("lent", labels={POOL: "loaned", "gpu": "t4"})
    assert demand(fleet, serving("waits", gpus=2, **spec)).needed_gpus == gpus


def test_a_pod_that_is_nominated_to_a_lent_node_needs_it() -> None:
    coming = serving("coming")
    coming["status"]["nominatedNodeName"] = "lent"
    assert demand(node("lent", **LENT), coming).needed_gpus == 1


def test_room_for_one_more_pod_stays_free_while_nothing_is_known_of_yesterday() -> None:
    fleet = (node("x", **FLEET), node("y", **FLEET))
    assert demand(*fleet).forecast_gpus == 1
    assert demand(*fleet, serving("large", "x", gpus=3)).forecast_gpus == 6
    many = [serving(f"pod-{number}", "xy"[number % 2]) for number in range(8)]
    assert demand(*fleet, *many).forecast_gpus == 10


def test_gpus_that_pods_wait_for_are_wanted_back_at_once_and_head_room_in_a_while() -> None:
    fleet = (node("own", **FLEET), node("lent", **LENT))
    full = [serving(f"pod-{number}", "own") for number in range(4)]
    seen = Seen(*fleet, *full[:1])
    first = seen.look().inference
    assert first is not None
    assert first.reclaim_by == float("inf")
    seen.put(*full)
    second = seen.look().inference
    assert second is not None
    assert second.reclaim_by == NOW + 600.0
    seen.put(serving("waits", nodeSelector={POOL: "inference"}))
    third = seen.look().inference
    assert third is not None
    assert third.reclaim_by == NOW


def test_an_instant_by_which_gpus_are_wanted_does_not_move_while_they_are_wanted() -> None:
    full = [serving(f"pod-{number}", "own") for number in range(4)]
    seen = Seen(node("own", **FLEET), node("lent", **LENT), *full)
    rows, fleet = seen.look().nodes, seen.snapshot.inference

    def wanted_by(now: float) -> float:
        demand = fleet.demand(rows, now)
        assert demand is not None
        return demand.reclaim_by

    assert wanted_by(NOW + 100.0) == NOW + 600.0
    seen.put(serving("waits", nodeSelector={POOL: "inference"}))
    fleet.update_groups(tuple(seen.cache.pods_of))
    assert (wanted_by(NOW + 200.0), wanted_by(NOW + 250.0)) == (NOW + 200.0, NOW + 200.0)


def test_a_label_that_is_taken_off_the_last_node_ends_the_demand() -> None:
    seen = Seen(node("own", **FLEET))
    assert seen.look().inference is not None
    seen.put(node("own"))
    assert seen.look().inference is None


def test_where_lending_was_stopped_what_is_lent_goes_back_and_no_more_is_lent() -> None:
    seen = Seen(node("own", **FLEET), node("lent", **LENT))
    seen.snapshot.inference.stop_lending(NOW + 300.0)
    demand = seen.look().inference
    assert demand is not None
    assert demand.horizon_at == 0.0
    seen.snapshot.inference.stop_lending(NOW - 1.0)
    later = seen.look().inference
    assert later == demand, "a shorter time ends no longer one"


def waiting(name: str, on: str = "", *, bound: str = "") -> Json:
    """A pod that only the fleet has room for, created at 10:00."""
    made = serving(name, on, nodeSelector={POOL: "inference"})
    made["metadata"] |= {"creationTimestamp": "2026-07-25T10:00:00Z", "uid": name, "name": name}
    if bound:
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": bound}
        made["status"]["conditions"] = [condition]
    return made


def test_a_pod_of_the_fleet_counts_once_with_how_long_it_waited_for_its_node() -> None:
    seen = Seen(node("own", **FLEET), waiting("pod"), serving("elsewhere", "a"))
    waits = seen.snapshot.inference.waits
    waits.began_at = 0.0
    seen.look()
    (so_far_s,) = waits.running_s(instant_at("2026-07-25T10:00:20Z") or 0.0)
    assert (so_far_s, waits.take_ended()) == (20.0, [])
    seen.put(waiting("pod", "own", bound="2026-07-25T10:00:42Z"))
    for _ in range(2):
        seen.look()
    seen.put(node("lent", **LENT))
    seen.look()
    assert (waits.running_s(NOW), waits.take_ended(), waits.take_ended()) == ([], [42.0], [])


def test_a_pod_that_had_its_node_before_the_service_began_is_not_counted_again() -> None:
    seen = Seen(node("own", **FLEET), waiting("pod", "own", bound="2026-07-25T10:00:42Z"))
    seen.look()
    assert seen.snapshot.inference.waits.take_ended() == []


def test_nobody_waits_for_a_fleet_that_is_none_any_more() -> None:
    seen = Seen(node("own", **FLEET), waiting("pod"))
    seen.look()
    assert len(seen.snapshot.inference.waits.running_s(NOW)) == 1
    seen.put(node("own"))
    seen.look()
    assert seen.snapshot.inference.waits.running_s(NOW) == []
