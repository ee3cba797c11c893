"""Pods go to the nodes that a plan names, and rather there than where the Job may only grow."""

from typing import Any

import pytest

from laxity import json_tree
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.affinity import PREFERRED, REQUIRED, WHILE_LENT, affinity_patch, find_roomy
from laxity_k8s.objects.node_constraints import asks_of
from laxity_scheduler.model.cluster import Node
from laxity_scheduler.model.decision import Admit
from laxity_scheduler.model.job import Job
from laxity_scheduler.model.reasons import reason
from tests.support.builders import workload
from tests.support.manifests import job

OWN: Json = {
    "weight": 7,
    "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]},
}


def sent(made: Json, nodes: str, roomy: str = "") -> Json:
    """The Job after a start; a node per letter."""
    patch = affinity_patch(made, list(nodes), list(roomy))
    assert patch is not None
    return {**made, "spec": json_tree.merge_patch(made["spec"], {"template": patch})}


def affinity(made: Json) -> Json:
    found: Json = made["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    return found


def required(made: Json) -> list[str]:
    terms = affinity(made)[REQUIRED]["nodeSelectorTerms"]
    return [field["values"][0] for term in terms for field in term["matchFields"]]


def weights(made: Json) -> dict[str, int]:
    """Of nodes by name; the user's own preferences are left out."""
    return {
        field["values"][0]: one["weight"]
        for one in affinity(made).get(PREFERRED, ())
        for field in one["preference"].get("matchFields", ())
    }


@pytest.mark.parametrize(
    ("nodes", "roomy", "want"),
    [
        pytest.param("a", "", {}, id="one node leaves no choice"),
        pytest.param("ab", "", {}, id="nodes that are alike"),
        pytest.param("a", "c", {"a": 100}, id="rather not where it may only grow"),
        pytest.param("aaab", "", {"a": 100, "b": 33}, id="by how many workers are meant for it"),
        pytest.param("aab", "cd", {"a": 100, "b": 50}, id="both"),
        pytest.param("a" * 300 + "b", "", {"a": 100, "b": 1}, id="never without any weight"),
    ],
)
def test_pods_prefer_the_nodes_that_are_meant_for_them(
    nodes: str, roomy: str, want: dict[str, int]
) -> None:
    made = sent(job(), nodes, roomy)
    assert weights(made) == want
    assert required(made) == sorted({*nodes, *roomy})


def test_a_next_start_replaces_our_preferences_and_keeps_the_users_own() -> None:
    made = job()
    made["spec"]["template"]["spec"]["affinity"] = {"nodeAffinity": {PREFERRED: [OWN]}}
    made = sent(sent(made, "a", "b"), "b", "c")
    assert weights(made) == {"b": 100}
    assert required(made) == ["b", "c"]
    assert OWN in affinity(made)[PREFERRED]
    assert affinity(sent(made, "b"))[PREFERRED] == [OWN]


def test_none_are_left_behind_where_none_is_needed() -> None:
    assert PREFERRED not in affinity(sent(sent(job(), "a", "b"), "a"))


@pytest.mark.parametrize("where", [("a", ""), ("a", "b"), ("aab", "c")])
def test_who_goes_there_already_is_not_patched(where: Any) -> None:
    made = sent(job(), *where)
    assert affinity_patch(made, list(where[0]), list(where[1])) is None


def test_a_node_of_the_fleet_is_named_before_it_is_lent_and_only_for_while_it_is() -> None:
    """The term does not hold while the node is labelled as inference's own."""
    patch = affinity_patch(job(), ["a"], ["b", "i"], fleet={"i", "other"})
    assert patch is not None
    terms = patch["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    labels = {term["matchFields"][0]["values"][0]: term.get("matchExpressions") for term in terms}
    assert labels == {"a": None, "b": None, "i": [WHILE_LENT]}
    template = json_tree.merge_patch(job()["spec"]["template"], patch)
    again = {**job(), "spec": {**job()["spec"], "template": template}}
    assert affinity_patch(again, ["a"], ["b", "i"], fleet={"i"}) is None
    assert asks_of(template) == asks_of(job()["spec"]["template"]), "the user has not asked for it"


def test_a_job_may_grow_onto_all_nodes_of_the_fleet_whichever_are_lent_then() -> None:
    nodes = {
        "t0": Node("t0", 2, 0), "t1": Node("t1", 8, 8), "t2": Node("t2", 8, 8),
        **{name: Node(name, 2, 2, pool="inference") for name in ("i0", "i1", "i2", "i3")},
        "l0": Node("l0", 2, 2, pool="loaned"), "gone": Node("gone", 8, 8, pool="cordoned"),
    }  # fmt: skip
    admit = Admit("default/job", 2, ("t0", "t0"), reason("start_on_lent"))
    row = Job("default/job", workload(), 0.0, widths=(2, 4, 6))
    assert find_roomy(nodes, nodes.values(), row, [admit]) == [
        *("t1", "l0", "i0", "i1", "i2", "i3")
    ]
    rigid = Job("default/job", workload(), 0.0, widths=(2,))
    assert find_roomy(nodes, nodes.values(), rigid, [admit]) == []


def test_of_a_large_fleet_some_are_named_lent_ones_first() -> None:
    fleet = [Node(f"i{number:03}", 1, 1, pool="inference") for number in range(300)]
    nodes = {node.id: node for node in [Node("t0", 1, 0), *fleet, Node("l0", 1, 1, pool="loaned")]}
    admit = Admit("default/job", 1, ("t0",), reason("start_on_lent"))
    few = Job("default/job", workload(), 0.0, widths=(1, 2))
    assert find_roomy(nodes, nodes.values(), few, [admit]) == ["l0", *(list(nodes)[1:100])]
    wide = Job("default/job", workload(), 0.0, widths=(1, 101))
    names = find_roomy(nodes, nodes.values(), wide, [admit])
    assert len(names) == 200, "twice the workers that it may get"
