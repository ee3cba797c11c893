"""Two kinds of GPUs: Jobs run on those that they ask for, and promises rest on no others.

The two nodes of this test are tainted, so that nobody else comes there; the other nodes of the
cluster are the wrong ones, and free.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.kubernetes.cluster import Cluster, simulated_node
from tests.support.kubernetes.place import Place, judged, running
from tests.support.kubernetes.service import verdict_of

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]

HOURS = 8
KIND, EXAM = "example.com/gpu", "example.com/exam"
TOLERATES = [{"key": EXAM, "operator": "Exists"}]
LONG = {"class": "hard", "epochs": "60", "epoch-estimate": "20s", "widths": "1"}
STAYS = {"preemptible": "false"}  # else it would make way and start again later, in time
Json = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def exam_nodes(cluster: Cluster) -> Iterator[None]:
    """Two nodes of two kinds of GPU, for those who tolerate them."""
    for kind in ("a100", "t4"):
        node = simulated_node(f"exam-{kind}", 2)
        node["metadata"]["labels"] |= {KIND: kind}
        node["spec"] = {"taints": [{"key": EXAM, "value": "yes", "effect": "NoSchedule"}]}
        assert cluster.ask("POST", "/api/v1/nodes", node)
    yield
    for kind in ("a100", "t4"):
        cluster.ask("DELETE", f"/api/v1/nodes/exam-{kind}")


def ask(
    there: Place, name: str, kind: str = "", *, tolerates: bool = True, due: str = f"{HOURS}h"
) -> Json:
    """A Job for this kind of GPU; its verdict."""
    made = there.job(name, {**LONG, **STAYS, "deadline": due})
    pod = made["spec"]["template"]["spec"]
    pod |= {"nodeSelector": {KIND: kind}} if kind else {}
    pod |= {"tolerations": TOLERATES} if tolerates else {}
    there.apply(made)
    return verdict_of(there.until_job(name, judged, "is judged"))


def node_of(there: Place, name: str) -> str:
    """Where its one worker runs."""
    there.until_job(name, running, "runs")
    (node,) = there.pods(name).values()
    return node


def test_jobs_run_on_the_gpus_that_they_ask_for_and_promises_rest_on_these_alone(
    there: Place,
) -> None:
    ask(there, "small", "t4")
    assert node_of(there, "small") == "exam-t4"
    for name in ("first", "second"):
        assert ask(there, name, "a100")["kind"] == "promise"
        assert node_of(there, name) == "exam-a100"
    ask(there, "plain", tolerates=False)
    assert not node_of(there, "plain").startswith("exam-")

    first = verdict_of(there.get("first"))
    whole_s = first["p90_at"] - (first["deadline_at"] - HOURS * 3600.0)
    refused = ask(there, "third", "a100", due=f"{int(1.4 * whole_s)}s")
    assert refused["kind"] == "refusal", "sixteen GPUs are free, and none of them will do"
    assert refused["reason"]["code"] == "capacity_promised_to_others"
    anywhere = ask(there, "third-anywhere", tolerates=False, due=f"{int(1.4 * whole_s)}s")
    assert anywhere["kind"] == "promise"
