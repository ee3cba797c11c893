"""Pods lean to the nodes that a plan names, and keep off those that are held for others."""

import pytest

from laxity import json_tree
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.node_rows.affinity import (
    NOT_OF_INFERENCE,
    PREFERRED,
    REQUIRED,
    affinity_patch,
    held_nodes,
    preferred_nodes,
)
from laxity_k8s.objects.node_rows.node_constraints import asks_of
from tests.support.manifests import job

ZONE: Json = {"key": "zone", "operator": "In", "values": ["x"]}
OWN: Json = {"weight": 7, "preference": {"matchExpressions": [ZONE]}}
NAMED: Json = {"key": "metadata.name", "operator": "NotIn", "values": ["mine"]}


def sent(made: Json, nodes: str, kept_off: str = "", *, has_fleet: bool = False) -> Json:
    """The Job after a start; a node per letter."""
    patch = affinity_patch(made, list(nodes), list(kept_off), has_fleet=has_fleet)
    assert patch is not None
    return {**made, "spec": json_tree.merge_patch(made["spec"], {"template": patch})}


def affinity(made: Json) -> Json:
    found: Json = made["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    return found


def weights(made: Json) -> dict[str, int]:
    """Of nodes by name; the user's own preferences are left out."""
    return {
        field["values"][0]: one["weight"]
        for one in affinity(made)[PREFERRED]
        for field in one["preference"].get("matchFields", ())
    }


@pytest.mark.parametrize(
    ("nodes", "want"),
    [
        pytest.param("a", {"a": 100}, id="one node"),
        pytest.param("ab", {"a": 100, "b": 100}, id="nodes that are alike"),
        pytest.param("aaab", {"a": 100, "b": 33}, id="by how many workers are meant for it"),
        pytest.param("a" * 300 + "b", {"a": 100, "b": 1}, id="never without any weight"),
    ],
)
def test_named_nodes_are_preferred_and_none_is_required(nodes: str, want: dict[str, int]) -> None:
    made = sent(job(), nodes)

    assert weights(made) == want
    assert REQUIRED not in affinity(made)


def test_what_the_user_requires_and_prefers_stays() -> None:
    made = job()
    term = {"matchExpressions": [ZONE], "matchFields": [NAMED]}
    both = {REQUIRED: {"nodeSelectorTerms": [term]}, PREFERRED: [OWN]}
    made["spec"]["template"]["spec"]["affinity"] = {"nodeAffinity": both}

    kept = sent(made, "a", "bc", has_fleet=True)
    free = sent(kept, "d")

    assert affinity(kept)[REQUIRED]["nodeSelectorTerms"][0]["matchFields"][0] == NAMED
    assert affinity(free)[REQUIRED]["nodeSelectorTerms"] == [term]
    assert affinity(free)[PREFERRED][0] == OWN
    assert weights(free) == {"d": 100}


def test_pods_keep_off_nodes_that_are_held_until_the_next_start() -> None:
    made = sent(job(), "a", "bc")
    fields = affinity(made)[REQUIRED]["nodeSelectorTerms"][0]["matchFields"]

    assert [field["operator"] for field in fields] == ["NotIn", "NotIn"]
    assert held_nodes(made["spec"]["template"]) == {"b", "c"}
    assert asks_of(made["spec"]["template"]) == asks_of(job()["spec"]["template"])
    assert REQUIRED not in affinity(sent(made, "b"))


def test_pods_keep_off_what_inference_has_not_lent() -> None:
    made = sent(job(), "a", has_fleet=True)

    (term,) = affinity(made)[REQUIRED]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [NOT_OF_INFERENCE]}
    assert REQUIRED not in affinity(sent(made, "b"))


@pytest.mark.parametrize("where", [("a", ""), ("a", "b"), ("aab", "c")])
def test_who_leans_there_already_is_not_patched(where: tuple[str, str]) -> None:
    made = sent(job(), *where)
    assert affinity_patch(made, list(where[0]), list(where[1])) is None


def test_a_second_try_prefers_nodes_on_which_no_worker_failed_to_come_up() -> None:
    patch = affinity_patch(job(), ["a", "b"], avoided=("b", "c"))
    made = {**job(), "spec": json_tree.merge_patch(job()["spec"], {"template": patch})}
    named, others = affinity(made)[PREFERRED]

    assert named["preference"]["matchFields"][0]["values"] == ["a"]
    assert [field["values"] for field in others["preference"]["matchFields"]] == [["b"], ["c"]]
    assert {field["operator"] for field in others["preference"]["matchFields"]} == {"NotIn"}
    assert preferred_nodes(made["spec"]["template"]) == {"a"}
    assert weights(sent(made, "b")) == {"b": 100}


T4 = ("nvidia.com/gpu.product", "Tesla-T4")
A100 = ("nvidia.com/gpu.product", "A100")


def started_on(made: Json, product: tuple[str, str] | None) -> Json:
    patch = affinity_patch(made, ["a"], product=product)
    assert patch is not None
    return {**made, "spec": json_tree.merge_patch(made["spec"], {"template": patch})}


def required(made: Json) -> list[Json]:
    terms: list[Json] = affinity(made).get(REQUIRED, {}).get("nodeSelectorTerms", [])
    return terms


def test_workers_stay_on_the_product_that_they_start_on() -> None:
    (term,) = required(started_on(job(), T4))
    assert {"key": T4[0], "operator": "In", "values": [T4[1]]} in term["matchExpressions"]


def test_the_next_start_may_be_on_another_product_or_on_any() -> None:
    first = started_on(job(), T4)
    (term,) = required(started_on(first, A100))
    assert [item["values"] for item in term["matchExpressions"] if item["key"] == T4[0]] == [
        ["A100"]
    ]
    patch = affinity_patch(first, ["b"])
    assert patch is not None
    assert patch["spec"]["affinity"]["nodeAffinity"][REQUIRED] is None


def test_what_laxity_adds_of_products_is_not_taken_for_what_the_user_asks() -> None:
    made = job()
    assert asks_of(started_on(made, T4)["spec"]["template"]) == asks_of(made["spec"]["template"])


def test_a_product_that_the_user_asks_for_stays_asked_for() -> None:
    """By another label with the same value, and by the same one in a term of its own."""
    kind: Json = {"key": "kind", "operator": "In", "values": [T4[1]]}
    named: Json = {"key": T4[0], "operator": "In", "values": [T4[1]]}
    for own in (kind, named):
        made = job()
        node_affinity = {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [own]}]}}
        made["spec"]["template"]["spec"]["affinity"] = {"nodeAffinity": node_affinity}
        product = A100 if own is named else T4
        again = started_on(started_on(made, product), None)
        assert required(again) == [{"matchExpressions": [own]}]
