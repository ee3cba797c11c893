"""Nodes that list no GPUs for a moment, and pods that change their owner, on a real cluster."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Final

import pytest

from laxity import names
from laxity.api.client import Client
from tests.support.builders import TOKEN
from tests.support.kubernetes.cluster import Cluster, simulated_node
from tests.support.kubernetes.kubectl import kubectl
from tests.support.kubernetes.place import HARD, Place, annotations, judged, running
from tests.support.kubernetes.service import Json, verdict_of

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]

GPU: Final = "nvidia.com/gpu"
NODES: Final = tuple(f"plugin-{number}" for number in range(8))
GPUS: Final = 8
LONG: Final = {**HARD, "deadline": "2h", "epochs": "100", "epoch-estimate": "30s"}
KINDS: Final = (  # of the 40 Jobs in turn: what they say, and how many workers they have
    ({**LONG, "preemptible": "false"}, 1),
    ({**LONG, "widths": "2"}, 2),
    ({**LONG, "class": "best_effort", "deadline": ""}, 1),
    ({**LONG, "class": "soft", "widths": "1,2"}, 1),
)


@pytest.fixture
def plugged(there: Place, cluster: Cluster) -> Iterator[Place]:
    """A namespace beside eight nodes of eight GPUs, for Jobs that ask for such a node."""
    for name in NODES:
        made = simulated_node(name, GPUS)
        made["metadata"]["labels"]["plugins"] = "restart"
        assert cluster.ask("POST", "/api/v1/nodes", made)
    there.until(lambda: set(NODES) <= free_gpus(there).keys(), "the nodes to be seen")
    yield there
    for name in NODES:
        cluster.ask("DELETE", f"/api/v1/nodes/{name}")


def asking(
    there: Place, name: str, asked: dict[str, str], workers: int = 1, node: str = ""
) -> Json:
    said = {key: text for key, text in asked.items() if text}
    made = there.job(name, said)
    made["spec"] |= {"parallelism": workers, "completions": workers}
    selector = {"plugins": "restart"} | ({"kubernetes.io/hostname": node} if node else {})
    made["spec"]["template"]["spec"]["nodeSelector"] = selector
    return made


def free_gpus(there: Place) -> dict[str, int]:
    """Of each node, as `laxity cluster` shows them."""
    client = Client(there.service.url, TOKEN)
    return {row["id"]: row["free_gpus"] for row in client.cluster()["nodes"]}


def list_gpus(there: Place, name: str, gpus: int, *, capacity: bool) -> None:
    """What the kubelet writes when the device plugin of a node goes or comes."""
    fields = ("allocatable", "capacity") if capacity else ("allocatable",)
    status = json.dumps({"status": {field: {GPU: str(gpus)} for field in fields}})
    kubectl(
        there.cluster, "patch", "node", name, "--subresource=status", "--type=merge", "-p", status
    )


def pods_there(there: Place) -> set[str]:
    said = json.loads(there.kubectl("get", "pods", "-o", "json"))["items"]
    return {pod["metadata"]["uid"] for pod in said if not pod["metadata"].get("deletionTimestamp")}


def test_device_plugins_that_restart_stop_nobody(plugged: Place) -> None:
    kinds = [KINDS[number % len(KINDS)] for number in range(40)]
    plugged.apply(*[asking(plugged, f"job-{number}", *kind) for number, kind in enumerate(kinds)])
    plugged.until(lambda: sum(map(running, plugged.jobs())) == 40, "all to run")
    pods = json.loads(plugged.kubectl("get", "pods", "-o", "json"))["items"]
    taken = Counter(pod["spec"]["nodeName"] for pod in pods)  # wherever the scheduler put them
    free = {name: GPUS - taken[name] for name in NODES}
    plugged.until(lambda: free.items() <= free_gpus(plugged).items(), "all pods to be counted")
    before = pods_there(plugged)

    for number, name in enumerate(NODES):
        list_gpus(plugged, name, 0, capacity=bool(number % 2))
        plugged.until(lambda name=name: free_gpus(plugged)[name] == 0, f"{name} to list none")  # type: ignore[misc]
        list_gpus(plugged, name, GPUS, capacity=True)
        plugged.until(
            lambda name=name: free_gpus(plugged)[name] == free[name],  # type: ignore[misc]
            f"{name} to list all",
        )

    events = json.loads(plugged.kubectl("get", "events", "-o", "json"))["items"]
    told = {event["reason"] for event in events}
    assert before <= pods_there(plugged)
    assert "Fits" in told
    assert told.isdisjoint({"NodeLost", "PromiseInDanger", "PromiseBroken", "NoEligibleNode"})
    assert all(map(running, plugged.jobs()))


def test_a_newcomer_is_promised_a_node_whose_device_plugin_restarts(plugged: Place) -> None:
    name = NODES[0]
    list_gpus(plugged, name, 0, capacity=False)
    plugged.until(lambda: free_gpus(plugged)[name] == 0, "the node to list none")

    plugged.apply(asking(plugged, "new", HARD, node=name))
    told = plugged.until_job("new", judged, "is judged")
    list_gpus(plugged, name, GPUS, capacity=False)
    plugged.until_job("new", running, "runs")

    assert verdict_of(told)["kind"] == "promise"
    assert annotations(told)[names.REASON] == "it needs 1 GPU (1 per worker); 0 free"
    assert set(plugged.pods("new").values()) == {name}


def test_orphaned_pods_are_counted_once_and_leave_nothing(plugged: Place) -> None:
    name = NODES[1]
    wide = asking(plugged, "wide", {**LONG, "widths": "8"}, 8, node=name)
    plugged.apply(wide)
    plugged.until_job("wide", lambda job: job["status"].get("ready") == 8, "runs")

    plugged.kubectl("delete", "job", "wide", "--cascade=orphan")
    plugged.until(lambda: free_gpus(plugged)[name] == 0, "the pods to be counted once")
    refused = asking(plugged, "early", HARD, node=name)
    plugged.apply(refused)
    told = plugged.until_job("early", judged, "is judged")
    plugged.kubectl("delete", "pods", "--all", "--grace-period=0", "--force")
    plugged.until(lambda: free_gpus(plugged)[name] == GPUS, "the node to be free")
    plugged.apply(asking(plugged, "late", HARD, node=name))

    plugged.until_job("late", running, "runs")
    assert verdict_of(told)["kind"] == "refusal"
