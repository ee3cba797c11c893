"""What pods request beside GPUs, as the scheduler counts it, and when it is counted at all."""

from typing import Any

import pytest

from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.pod_requests import amounts_of, requests_of
from tests.support.manifests import job, node, pod
from tests.support.seen_nodes import NOW, Seen

PORT: Json = {"containerPort": 29500, "hostPort": 29500}


def container(limits: Json | None = None, ports: tuple[Json, ...] = (), **requests: Any) -> Json:
    resources = {"requests": requests, "limits": {"nvidia.com/gpu": "1", **(limits or {})}}
    return {"name": "train", "resources": resources, "ports": list(ports)}


def read(spec: Json) -> dict[str, int]:
    return {name: amount for name, amount in requests_of({"spec": spec}) if name != "pods"}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"containers": [container(cpu="1500m")]}, {"cpu": 1500}, id="CPUs"),
        pytest.param({"containers": [container(memory="2Gi")]}, {"memory": 2 << 30}, id="memory"),
        pytest.param({"containers": [container({"cpu": "2"})]}, {"cpu": 2000}, id="a limit alone"),
        pytest.param(
            {"containers": [container(cpu="1"), container(cpu="2")]}, {"cpu": 3000}, id="two"
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "initContainers": [container(cpu="4")]},
            {"cpu": 4000},
            id="what runs before takes more",
        ),
        pytest.param(
            {
                "containers": [container(cpu="1")],
                "initContainers": [{**container(cpu="4"), "restartPolicy": "Always"}],
            },
            {"cpu": 5000},
            id="a sidecar runs beside",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "overhead": {"cpu": "250m"}},
            {"cpu": 1250},
            id="overhead of the runtime",
        ),
        pytest.param(
            {"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "3"}}},
            {"cpu": 3000},
            id="said of the whole pod",
        ),
        pytest.param(
            {"containers": [container({"example.com/fpga": "2"})]},
            {"example.com/fpga": 2},
            id="an extended resource",
        ),
        pytest.param(
            {"containers": [container(ports=(PORT,))]},
            {"host port 29500/TCP": 1},
            id="a host port",
        ),
        pytest.param(
            {"containers": [container(ports=({"containerPort": 53, "protocol": "UDP"},))]},
            {},
            id="a port of the pod",
        ),
        pytest.param(
            {
                "hostNetwork": True,
                "containers": [container(ports=({"containerPort": 53, "protocol": "UDP"},))],
            },
            {"host port 53/UDP": 1},
            id="a port on the node's network",
        ),
        pytest.param({"containers": [container(cpu="much"), 7]}, {}, id="nonsense"),
    ],
)
def test_requests_are_read_as_the_scheduler_counts_them(spec: Json, want: dict[str, int]) -> None:
    assert read(spec) == want


def sized(name: str, **allocatable: str) -> Json:
    made = node(name, gpus=4)
    made["status"]["allocatable"] |= {"pods": "110", **allocatable}
    return made


def asking(name: str, **requests: str) -> Json:
    made = job(name, width=2)
    made["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] = requests
    return made


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("24683072Ki", 24_683_072 * 1024), ("768Gi", 768 * 2**30), ("25G", 25 * 10**9),
        ("64k", 64_000), ("1e9", 10**9), ("123", 123),
    ],
)  # fmt: skip
def test_amounts_of_nodes_are_read_as_kubelets_write_them(text: str, amount: int) -> None:
    listed = amounts_of({"status": {"allocatable": {"pods": "110", "memory": text}}})
    assert listed is not None
    assert listed["memory"] == amount


def test_an_amount_of_a_node_that_cannot_be_read_bounds_no_pods() -> None:
    listed = amounts_of({"status": {"allocatable": {"pods": "110", "memory": "much"}}})
    assert listed is not None
    assert listed["memory"] > 2**50


def test_what_is_never_scarcer_than_gpus_is_not_counted() -> None:
    seen = Seen(sized("a", cpu="32"), sized("b", cpu="32"), asking("job", cpu="8"))

    state = seen.look()

    assert [row.needs for row in state.jobs] == [()]
    assert {row.room for row in state.nodes} == {None}


def test_one_worker_that_asks_for_more_makes_all_requests_count() -> None:
    seen = Seen(sized("a", cpu="32"), sized("b", cpu="32"), asking("job", cpu="8"))
    seen.look()
    heavy = asking("heavy", cpu="20")

    seen.put(heavy)
    state = seen.look()
    seen.cache.drop_object("jobs", "default/heavy")

    assert {row.id: dict(row.needs)["cpu"] for row in state.jobs} == {
        "default/job": 8000,
        "default/heavy": 20_000,
    }
    assert [(row.room or {})["cpu"] for row in state.nodes] == [32_000, 32_000]
    assert [row.needs for row in seen.look().jobs] == [()]


def test_pods_of_others_and_of_the_node_itself_take_their_share() -> None:
    daemon = pod(0, of="daemon", node="a")
    daemon["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "4", "memory": "1Gi"}}
    worker = pod(0, node="b")
    worker["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "8"}
    running = asking("job", cpu="8")
    running["spec"] |= {"suspend": False}

    state = Seen(sized("a", cpu="32"), sized("b", cpu="32"), running, daemon, worker).look()
    rooms = {row.id: (dict(row.room or {}), dict(row.free_room or {})) for row in state.nodes}

    assert (rooms["a"][0]["cpu"], rooms["a"][1]["cpu"]) == (28_000, 28_000)
    assert (rooms["b"][0]["cpu"], rooms["b"][1]["cpu"]) == (32_000, 24_000)
    assert rooms["a"][0]["pods"] == 109


def test_on_a_node_that_is_no_kubelets_only_gpus_count() -> None:
    """Such as this machine's: nothing there takes a host port for a pod."""
    ports = asking("job")
    ports["spec"]["template"]["spec"]["containers"][0]["ports"] = [PORT]

    state = Seen(ports).look()

    assert [row.needs for row in state.jobs] == [()]


def test_a_question_counts_what_its_workers_would_request() -> None:
    seen = Seen(sized("a", cpu="32"), sized("b", cpu="32"), asking("heavy", cpu="20"))
    seen.look()

    preview = seen.snapshot.preview(asking("new", cpu="8"), NOW)

    assert dict(preview.row.needs)["cpu"] == 8000
