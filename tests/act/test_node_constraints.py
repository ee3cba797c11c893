"""Which nodes do for a Job's pods: labels, affinity, taints, as Kubernetes' scheduler reads them."""

from collections.abc import Mapping
from typing import Any

import pytest

from laxity import json_tree
from laxity_k8s.cluster_api import Json
from laxity_k8s.error_isolation import Guard
from laxity_k8s.local.scheduler import find_bindings
from laxity_k8s.objects.node_rows.affinity import REQUIRED, affinity_patch
from laxity_k8s.objects.node_rows.node_constraints import (
    NOTHING,
    adds_tolerations,
    asks_of,
    is_suited,
    shut_out,
)
from laxity_k8s.objects.node_rows.scaling_pool import SHUT
from laxity_k8s.objects.status_annotation import digest_terms
from laxity_k8s.observe.accelerator_counts import AcceleratorCounts
from laxity_k8s.observe.eligible import Eligible
from laxity_k8s.observe.scaling_pools import ScalingPools
from tests.support.manifests import job, node, pod

RESERVED: Json = {"key": "team", "value": "red", "effect": "NoSchedule"}
ONGPU: Json = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def template(**spec: Any) -> Json:
    made = job()
    made["spec"]["template"]["spec"] |= spec
    found: Json = made["spec"]["template"]
    return found


def affinity(*terms: list[Json], fields: tuple[Json, ...] = ()) -> Json:
    made: list[Json] = [{"matchExpressions": term} for term in terms]
    made += [{"matchFields": [field]} for field in fields]
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": made}}}}


def said(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


def machine(name: str = "a", taints: list[Json] | None = None, **labels: str) -> Json:
    return node(name, labels=labels, taints=taints or [])


@pytest.mark.parametrize(
    ("asked", "labels", "fits"),
    [
        pytest.param({}, {}, True, id="nothing is asked"),
        pytest.param({"nodeSelector": {"gpu": "a"}}, {"gpu": "a"}, True, id="the label"),
        pytest.param({"nodeSelector": {"gpu": "a"}}, {"gpu": "b"}, False, id="another value"),
        pytest.param({"nodeSelector": {"gpu": "a"}}, {}, False, id="no such label"),
        pytest.param(
            {"nodeSelector": {"gpu": "a", "zone": "x"}}, {"gpu": "a"}, False, id="all labels count"
        ),
        pytest.param(affinity([said("gpu", "In", "a", "b")]), {"gpu": "b"}, True, id="In"),
        pytest.param(affinity([said("gpu", "In", "a", "b")]), {}, False, id="In, no label"),
        pytest.param(affinity([said("gpu", "NotIn", "a")]), {"gpu": "a"}, False, id="NotIn"),
        pytest.param(affinity([said("gpu", "NotIn", "a")]), {}, True, id="NotIn, no label"),
        pytest.param(affinity([said("gpu", "Exists")]), {"gpu": ""}, True, id="Exists"),
        pytest.param(affinity([said("gpu", "Exists")]), {}, False, id="Exists, no label"),
        pytest.param(affinity([said("gpu", "DoesNotExist")]), {"gpu": "a"}, False, id="not there"),
        pytest.param(affinity([said("gib", "Gt", "40")]), {"gib": "80"}, True, id="Gt"),
        pytest.param(affinity([said("gib", "Gt", "80")]), {"gib": "80"}, False, id="Gt, equal"),
        pytest.param(affinity([said("gib", "Gt", "9")]), {"gib": "much"}, False, id="no number"),
        pytest.param(affinity([said("gib", "Lt", "80")]), {"gib": "40"}, True, id="Lt"),
        pytest.param(affinity([said("gib", "Lt", "80")]), {}, False, id="Lt, no label"),
        pytest.param(affinity([said("gib", "Gt", "-3")]), {"gib": "0"}, True, id="negative"),
        pytest.param(affinity([said("gib", "Gt", "1")]), {"gib": "²"}, False, id="no digit"),
        pytest.param(affinity([said("gib", "Lt", "²")]), {"gib": "2"}, False, id="no limit"),
        pytest.param(affinity([said("gib", "Gt", "1")]), {"gib": "9" * 5000}, False, id="endless"),
        pytest.param(affinity([said("gib", "Lt", "9" * 5000)]), {"gib": "2"}, False, id="no end"),
        pytest.param(
            affinity([said("gpu", "In", "a"), said("zone", "In", "x")]),
            {"gpu": "a", "zone": "y"},
            False,
            id="all of a term",
        ),
        pytest.param(
            affinity([said("gpu", "In", "a")], [said("zone", "In", "x")]),
            {"gpu": "b", "zone": "x"},
            True,
            id="one of the terms",
        ),
        pytest.param(
            {"nodeSelector": {"gpu": "a"}, **affinity([said("zone", "In", "x")])},
            {"zone": "x"},
            False,
            id="selector and affinity",
        ),
        pytest.param(affinity([said("gpu", "Near", "a")]), {"gpu": "a"}, False, id="unknown"),
        pytest.param(
            affinity(fields=(said("metadata.name", "NotIn", "a"),)), {}, False, id="not this node"
        ),
        pytest.param(
            affinity(fields=(said("metadata.name", "NotIn", "b"),)), {}, True, id="not another"
        ),
        pytest.param({"nodeName": "b"}, {}, False, id="the name of another node"),
    ],
)
def test_labels_decide_as_kubernetes_scheduler_does(
    asked: Json, labels: dict[str, str], fits: bool
) -> None:
    there = node("a", labels=labels)
    assert is_suited(asks_of(template(**asked)), there) is fits


@pytest.mark.parametrize(
    ("tolerated", "taint", "fits"),
    [
        pytest.param([], RESERVED, False, id="not tolerated"),
        pytest.param([], RESERVED | {"effect": "NoExecute"}, False, id="NoExecute"),
        pytest.param([], RESERVED | {"effect": "PreferNoSchedule"}, True, id="only preferred"),
        pytest.param([], RESERVED | {"key": "node.kubernetes.io/not-ready"}, True, id="passing"),
        pytest.param([{"key": "team", "value": "red"}], RESERVED, True, id="equal by default"),
        pytest.param([{"key": "team", "value": "blue"}], RESERVED, False, id="another value"),
        pytest.param([{"key": "team", "operator": "Exists"}], RESERVED, True, id="any value"),
        pytest.param([{"operator": "Exists"}], RESERVED, True, id="all taints"),
        pytest.param([{"operator": "Equal", "value": "red"}], RESERVED, False, id="no key"),
        pytest.param(
            [{"key": "team", "operator": "Exists", "effect": "NoExecute"}],
            RESERVED,
            False,
            id="another effect",
        ),
        pytest.param([{"key": "team", "operator": "Lt", "value": "9"}], RESERVED, False, id="odd"),
        pytest.param([], ONGPU, False, id="a taint of GPUs is one as any other"),
    ],
)
def test_taints_decide_as_kubernetes_scheduler_does(
    tolerated: list[Json], taint: Json, fits: bool
) -> None:
    asks = asks_of(template(tolerations=tolerated))
    assert is_suited(asks, machine(taints=[taint])) is fits


def test_what_laxity_wrote_itself_does_not_count() -> None:
    made = job()
    made["spec"]["template"]["spec"] |= affinity([said("gpu", "In", "a")])
    before = asks_of(made["spec"]["template"])
    patch = affinity_patch(made, ["n1"], ["n2"], has_fleet=True)
    sent = json_tree.merge_patch(made["spec"]["template"], patch)
    assert asks_of(sent) == before
    assert (
        asks_of(json_tree.merge_patch(template(), affinity_patch(job(), ["n1"], ["n2"]))) is NOTHING
    )
    assert digest_terms({**made, "spec": {**made["spec"], "template": sent}}) == digest_terms(made)


def test_who_asks_for_other_nodes_asks_for_another_verdict() -> None:
    plain, choosy = job(), job()
    choosy["spec"]["template"]["spec"]["nodeSelector"] = {"gpu": "a"}
    assert digest_terms(plain) != digest_terms(choosy)


@pytest.mark.parametrize(
    ("asked", "there", "words"),
    [
        ({"nodeSelector": {"gpu": "a"}}, machine(gpu="b"), "label gpu is b, a is asked"),
        ({"nodeSelector": {"gpu": "a"}}, machine(), "label gpu is missing, a is asked"),
        (
            affinity([said("gpu", "In", "b", "a")]),
            machine(gpu="c"),
            "label gpu is c, gpu In (a, b) is asked",
        ),
        (
            affinity([said("x", "Exists")], [said("y", "Exists")]),
            machine(),
            "none of 2 affinity terms is met",
        ),
        ({"nodeName": "b"}, machine(), "its name is a, metadata.name In (b) is asked"),
        ({}, machine(taints=[RESERVED]), "taint team=red:NoSchedule is not tolerated"),
        ({}, machine(taints=[SHUT]), "no node of its pool came in time"),
        (
            {"tolerations": [{"operator": "Exists"}]},
            machine(taints=[SHUT]),
            "no node of its pool came in time",
        ),
    ],
)
def test_it_is_said_what_shuts_a_job_out(asked: Json, there: Json, words: str) -> None:
    assert shut_out(asks_of(template(**asked)), there, gpu_taints=True) == words


def test_sets_have_names_that_people_can_read() -> None:
    asked = template(
        nodeSelector={"gpu": "a", "disk": "ssd"},
        tolerations=[{"key": "team", "value": "red"}, {"operator": "Exists"}],
        **affinity([said("zone", "In", "y", "x")]),
    )
    assert asks_of(asked).text == (
        "disk=ssd, gpu=a, zone In (x, y), tolerating all taints, tolerating team=red"
    )
    long = [asks_of(template(nodeSelector={"gpu": "a" * many})).text for many in (300, 301)]
    assert len(set(long)) == 2
    assert max(map(len, long)) < 250


CLUSTER = {"a": machine("a", gpu="x"), "b": machine("b", gpu="y"), "cpu": node("cpu", 0)}


class Looked(Eligible):
    """The nodes as they list their accelerators."""

    def __init__(self, nodes: dict[str, Json] = CLUSTER) -> None:
        self.machines: dict[str, Json] = {}
        self.accelerators = AcceleratorCounts(self.machines)
        super().__init__(self.accelerators, ScalingPools((), {}))
        assert self.update_nodes(nodes)

    def update_nodes(self, nodes: Mapping[str, Json]) -> bool:
        self.machines.clear()
        self.machines.update(nodes)
        self.accelerators.look(0.0)
        return super().update_nodes(nodes)


def test_who_may_use_every_node_with_gpus_has_no_set() -> None:
    nodes = Looked()
    assert nodes.name_of(NOTHING) == ""
    assert nodes.name_of(asks_of(template(**affinity([said("gpu", "Exists")])))) == ""
    name, found = nodes.set_of(asks_of(template(nodeSelector={"gpu": "x"})))
    assert (name, found.nodes) == ("gpu=x", frozenset({"a"}))
    assert found.shut_out == "b: label gpu is y, x is asked"


def test_a_node_that_lists_none_of_its_gpus_is_named_first() -> None:
    asks = asks_of(template(nodeSelector={"gpu": "z"}))
    bare = {"z": node("z", 0, labels={"gpu": "z"}), "other": node("other", 0)}
    _, found = Looked({**CLUSTER, **bare}).set_of(asks)
    assert found.nodes == frozenset()
    assert found.shut_out.startswith("z: it lists 0 nvidia.com/gpu; ")
    assert "other" not in found.shut_out


def test_sets_are_worked_out_anew_when_labels_or_taints_change_and_only_then() -> None:
    nodes, asks = Looked(), asks_of(template(nodeSelector={"gpu": "x"}))
    first = nodes.set_of(asks)
    beat = {name: {**one, "status": {**one["status"], "beat": 1}} for name, one in CLUSTER.items()}
    assert not nodes.update_nodes(beat)
    assert nodes.set_of(asks) is first
    assert nodes.update_nodes({**beat, "b": machine("b", gpu="x")})
    assert nodes.name_of(asks) == ""
    assert nodes.update_nodes({**beat, "b": machine("b", [RESERVED], gpu="x")})
    assert nodes.set_of(asks)[1].nodes == {"a"}
    assert nodes.name_of(NOTHING) == "a node without taints"
    assert nodes.update_nodes({"b": machine("b", [RESERVED], gpu="x")}), "a node went"
    assert nodes.set_of(asks)[1].nodes == frozenset()


def test_taints_of_gpus_are_tolerated_where_the_cluster_adds_that_until_a_pod_shows_otherwise() -> (
    None
):
    """Admission plugin ExtendedResourceToleration works on pods, so no template shows it."""
    nodes = Looked({"a": machine("a", [ONGPU]), "b": machine("b")})
    assert nodes.name_of(NOTHING) == ""
    added = pod(0)
    added["spec"]["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    assert not nodes.learn_tolerations(template(), [added])
    assert nodes.learn_tolerations(template(), [pod(0)])
    assert nodes.set_of(NOTHING)[1].nodes == {"b"}
    own = template(tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}])
    assert nodes.name_of(asks_of(own)) == ""
    assert adds_tolerations(own, pod(0)) is None, "its own toleration shows nothing"
    assert nodes.learn_tolerations(template(), [added])
    assert nodes.name_of(NOTHING) == ""


def test_a_local_pod_goes_where_labels_and_taints_allow() -> None:
    nodes = [machine("a", gpu="x"), machine("b", [RESERVED], gpu="y"), machine("c", gpu="y")]

    def bound(**spec: Any) -> str:
        waiting = pod(0, phase="Pending")
        waiting["spec"] |= spec
        found = find_bindings(
            [waiting], (), nodes, {"default/job": job(nodes='["a"]')}, Guard("test")
        )
        return found.get(json_tree.object_id(waiting), "")

    assert bound() == "a"
    assert bound(nodeSelector={"gpu": "y"}) == "c"
    assert bound(nodeSelector={"gpu": "z"}) == ""
    assert bound(nodeSelector={"gpu": "y"}, tolerations=[{"operator": "Exists"}]) == "b"


def test_words_that_are_no_text_are_read_all_the_same() -> None:
    odd = template(nodeSelector={"gpu": "\ud800"})
    assert asks_of(odd).labels == (("gpu", "\ud800"),)
    assert asks_of(template(nodeSelector={"gpu": 2**70})).labels == (("gpu", str(2**70)),)


def test_a_pod_is_bound_to_a_node_and_a_template_that_names_one_asks_for_it() -> None:
    named = template(nodeName="a")
    assert asks_of(named).terms
    assert asks_of({**named, "kind": "Pod"}) is NOTHING
    assert asks_of(named) == asks_of(template(nodeName="a"))
