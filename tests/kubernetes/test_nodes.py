"""A node that is not ready for a moment keeps its jobs; after a while it counts as lost."""

import pytest

from laxity.instants import format_rfc3339
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.node_rows.nodes import UNREADY_S, node_rows
from laxity_scheduler.model.cluster import Node

NOW = 1_800_000_000.0


def node(status: str, since: float | None, *, gpus: int = 4) -> Json:
    condition = {"type": "Ready", "status": status}
    if since is not None:
        condition["lastTransitionTime"] = format_rfc3339(since)
    return {
        "metadata": {"name": "a"},
        "status": {"allocatable": {"nvidia.com/gpu": str(gpus)}, "conditions": [condition]},
    }


def taint(name: str, effect: str = "NoSchedule") -> Json:
    return {"key": f"node.kubernetes.io/{name}", "effect": effect}


@pytest.mark.parametrize("status", ["False", "Unknown"])
@pytest.mark.parametrize(
    ("away_s", "there"),
    [(0.0, True), (UNREADY_S - 1, True), (UNREADY_S, False), (3600.0, False)],
)
def test_a_node_is_lost_when_it_is_away_for_long(status: str, away_s: float, there: bool) -> None:
    found = node_rows(node(status, NOW - away_s), {"a": 1}, now=NOW)
    assert bool(found) is there


def test_a_node_that_is_away_takes_no_new_workers() -> None:
    assert node_rows(node("Unknown", NOW), {"a": 1}, now=NOW) == [Node("a", 4, 0, away_gpus=3)]


def test_a_node_that_is_back_is_as_before_however_long_ago_it_went() -> None:
    assert node_rows(node("True", NOW - 3600.0), {"a": 1}, now=NOW) == [Node("a", 4, 3)]


@pytest.mark.parametrize("since", [None, "yesterday", 7])
def test_a_node_that_does_not_say_since_when_it_is_away_is_lost(since: object) -> None:
    away = node("False", None)
    away["status"]["conditions"][0]["lastTransitionTime"] = since
    assert node_rows(away, {}, now=NOW) == []


@pytest.mark.parametrize(
    ("spec", "pool", "free", "trouble"),
    [
        pytest.param({}, "training", 3, "", id="open"),
        pytest.param({"unschedulable": True}, "cordoned", 0, "", id="cordoned"),
        pytest.param(
            {"unschedulable": True, "taints": [taint("unschedulable")]},
            "cordoned",
            0,
            "",
            id="and tainted",
        ),
        pytest.param(
            {"taints": [taint("disk-pressure")]},
            "training",
            0,
            "disk-pressure",
            id="its disk is full",
        ),
        # A pod that asks for GPUs alone, and for no CPU and memory, does not tolerate it.
        pytest.param(
            {"taints": [taint("memory-pressure")]},
            "training",
            0,
            "memory-pressure",
            id="little memory",
        ),
        pytest.param(
            {"taints": [taint("disk-pressure", "PreferNoSchedule")]},
            "training",
            3,
            "",
            id="preferred",
        ),
    ],
)
def test_a_node_that_is_emptied_or_in_trouble_takes_no_new_workers(
    spec: Json, pool: str, free: int, trouble: str
) -> None:
    (row,) = node_rows({**node("True", NOW), "spec": spec}, {"a": 1}, now=NOW)
    assert (row.pool, row.free_gpus, row.trouble) == (pool, free, trouble)
