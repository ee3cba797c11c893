"""Accelerators are counted by the name of their resource, over all containers of a pod."""

from typing import Any

import pytest

from laxity.job.accelerators import count_accelerators, is_accelerator
from laxity.job.pod_template import pod_template
from laxity_k8s.act.patches import job_patch
from laxity_k8s.act.plan_patches import on_machines
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import jobs
from laxity_k8s.objects.node_rows.node_constraints import NOTHING, asks_of
from laxity_scheduler.model.decision import Admit
from laxity_scheduler.model.reasons import reason
from tests.support.manifests import job, node, pod
from tests.support.seen_nodes import Seen

NVIDIA, AMD, SLICE = "nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-1g.5gb"


def container(count: object = 1, resource: str = NVIDIA, **more: str) -> Json:
    return {"name": "c", "resources": {"limits": {resource: count}}, **more}


def asking(resource: str, count: str = "1", name: str = "job", **more: Any) -> Json:
    made = job(name, **more)
    made["spec"]["template"]["spec"]["containers"] = [container(count, resource)]
    return made


def offering(name: str, **counts: str) -> Json:
    made = node(name)
    kinds = {"nvidia": NVIDIA, "amd": AMD, "mig": SLICE}
    made["status"]["allocatable"] = {kinds[kind]: count for kind, count in counts.items()}
    return made


@pytest.mark.parametrize(
    ("first", "together", "want"),
    [
        pytest.param([], [container("2"), container("1")], {NVIDIA: 3}, id="containers add up"),
        pytest.param([container(4)], [container(1)], {NVIDIA: 4}, id="init containers come before"),
        pytest.param(
            [container(2, restartPolicy="Always")], [container(1)], {NVIDIA: 3}, id="sidecar"
        ),
        pytest.param(
            [container(1, restartPolicy="Always"), container(3)],
            [container(1)],
            {NVIDIA: 4},
            id="init container beside a sidecar",
        ),
        pytest.param([], [container(1, AMD), container("x")], {AMD: 1}, id="nonsense is none"),
        pytest.param([], [container(8, "rdma/hca"), container(1, SLICE)], {SLICE: 1}, id="network"),
    ],
)
def test_a_pod_takes_what_kubernetes_counts(
    first: list[Json], together: list[Json], want: dict[str, int]
) -> None:
    assert count_accelerators({"initContainers": first, "containers": together}) == want


@pytest.mark.parametrize(
    ("resource", "want"),
    [
        (NVIDIA, True), (AMD, True), (SLICE, True), ("nvidia.com/gpu.shared", True),
        ("gpu.intel.com/i915", True), ("google.com/tpu", True), ("aws.amazon.com/neuron", True),
        ("rdma/hca", False), ("nvidia.com/gpumem", False), ("cpu", False), ("gpu", False),
        ("gpu.intel.com/millicores", False), ("hugepages-2Mi", False),
    ],
)  # fmt: skip
def test_accelerators_are_told_from_other_resources(resource: str, want: bool) -> None:
    assert is_accelerator(resource) is want


@pytest.mark.parametrize(
    ("containers", "words"),
    [
        pytest.param([{"name": "c"}], "no container asks for a GPU", id="only CPUs"),
        pytest.param([container(), container(1, AMD)], "amd.com/gpu and nvidia.com/gpu", id="two"),
        pytest.param([container(), container("1500m")], "containers[1].resources", id="parts"),
    ],
)
def test_what_cannot_be_counted_is_refused_in_words(containers: list[Json], words: str) -> None:
    made = job()
    made["spec"]["template"]["spec"]["containers"] = containers
    bad = jobs.job_row(made)
    assert isinstance(bad, jobs.BadJob)
    assert words in "; ".join(bad.problems)


def test_a_machine_of_two_kinds_is_two_nodes_and_each_job_sees_its_own() -> None:
    seen = Seen(
        offering("a", nvidia="4", mig="7"),
        offering("b", amd="8"),
        asking(SLICE, "2", "sliced"),
        asking(AMD, "1", "other", widths="1,2,4,8,16"),
        job("usual"),
    )
    state = seen.look()
    assert {one.id: one.gpus for one in state.nodes} == {f"a/{SLICE}": 7, "a": 4, f"b/{AMD}": 8}
    assert state.eligible_nodes(state.by_id["default/sliced"]) == frozenset({f"a/{SLICE}"})
    assert state.eligible_nodes(state.by_id["default/other"]) == frozenset({f"b/{AMD}"})
    assert state.by_id["default/other"].widths == (1, 2, 4, 8), "no more than there are of its kind"
    assert state.eligible_nodes(state.by_id["default/usual"]) == frozenset({"a"})
    assert state.sets is not None
    words = state.sets[AMD].shut_out
    assert f"a: it offers {NVIDIA}, {AMD} is asked" in words

    taken = pod(None, of="foreign", node="a")
    taken["spec"]["containers"] = [container(3, SLICE)]
    seen.put(taken)
    assert seen.busy() == {f"a/{SLICE}": 3, "a": 0, f"b/{AMD}": 0}


def test_one_kind_of_accelerator_needs_no_sets_whatever_it_is_called() -> None:
    assert asks_of(job()["spec"]["template"]) is NOTHING
    seen = Seen(offering("a", amd="4"), offering("b", amd="4"), asking(AMD))
    assert seen.look().by_id["default/job"].eligible == ""


def test_pods_are_sent_to_the_machine_and_counted_on_the_site() -> None:
    made = asking(SLICE, deadline="1h")
    seen = Seen(offering("a", nvidia="4", mig="7"), made)
    row = seen.look().by_id["default/job"]
    start = Admit(row.id, 1, (f"a/{SLICE}",), reason("order", policy="fifo"))
    patch = job_patch(made, row, [on_machines(start)], now=100.0)
    assert patch is not None
    annotations = patch.patch.body["metadata"]["annotations"]
    assert annotations["laxity.dev/nodes"] == '["a"]'
    started = asking(SLICE, nodes='["a"]')
    started["spec"]["suspend"] = False
    started["metadata"]["annotations"] |= annotations
    seen.put(started)
    assert seen.look().by_id["default/job"].nodes == (f"a/{SLICE}",)
    assert seen.busy()[f"a/{SLICE}"] == 1


def test_a_flow_for_other_accelerators_names_them_in_its_template() -> None:
    wanted = {"resources": {"limits": {AMD: 2}}}
    made = pod_template(command="m:f", image="i", env={}, gpus_per_worker=2, overrides=wanted)
    assert count_accelerators(made["spec"]) == {AMD: 2}
