"""A cluster with GPUs of two products: a model with runs on both is promised on the one that will do."""

from collections.abc import Iterator
from typing import Any

import pytest

from laxity_profiler.estimate import Workload
from laxity_profiler.history.history import Epoch, History
from laxity_profiler.history.history_database import open_engine
from tests.support.kubernetes.cluster import Cluster, simulated_node
from tests.support.kubernetes.killable_services import ServiceForker
from tests.support.kubernetes.place import Place, judged, running
from tests.support.kubernetes.service import Service, verdict_of

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]

PRODUCT, EXAM = "nvidia.com/gpu.product", "example.com/products"
EPOCH_S = {"NVIDIA-A100-SXM4-80GB": 20.0, "Tesla-T4": 80.0}
FAST, SLOW = EPOCH_S
MODEL = "shared/mixed-exam"
ASKED = {"class": "hard", "epochs": "60", "widths": "1", "model": MODEL, "preemptible": "false"}
Json = dict[str, Any]


@pytest.fixture(scope="module")
def service(
    account: None,
    cluster: Cluster,
    service_forker: ServiceForker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Service]:
    """Its store has runs of the model on both products."""
    folder = tmp_path_factory.mktemp("mixed")
    store = f"sqlite:///{folder}/laxity.db"
    history = History(open_engine(store))
    for product, epoch_s in EPOCH_S.items():
        for run in range(4):
            uid, workload = f"{product}-{run}", Workload(MODEL, 60, gpu_type=product)
            epochs = [
                Epoch(n, 1, epoch_s, at=1e9 + n, nodes=1, gpu_type=product) for n in range(1, 61)
            ]
            history.add_epochs(uid, f"default/{uid}", workload, epochs)
    history.engine.dispose()
    cluster.drop_lease()
    with Service(cluster, folder, service_forker=service_forker, store=store).running() as made:
        yield made


@pytest.fixture(scope="module", autouse=True)
def exam_nodes(cluster: Cluster) -> Iterator[None]:
    """A node of each product, with two GPUs."""
    for number, product in enumerate(EPOCH_S):
        node = simulated_node(f"mixed-{number}", 2)
        node["metadata"]["labels"] |= {PRODUCT: product, EXAM: "yes"}
        assert cluster.ask("POST", "/api/v1/nodes", node)
    yield
    for number in range(len(EPOCH_S)):
        cluster.ask("DELETE", f"/api/v1/nodes/mixed-{number}")


def ask(there: Place, name: str, due: str, selector: dict[str, str]) -> Json:
    made = there.job(name, {**ASKED, "deadline": due})
    made["spec"]["template"]["spec"]["nodeSelector"] = {EXAM: "yes", **selector}
    there.apply(made)
    return verdict_of(there.until_job(name, judged, "is judged"))


def node_of(there: Place, name: str) -> str:
    there.until_job(name, running, "runs")
    (node,) = there.pods(name).values()
    return node


def test_a_job_is_promised_on_the_product_that_keeps_its_deadline(there: Place) -> None:
    tight = ask(there, "tight", "40m", {})
    assert (tight["kind"], tight["gpu_type"]) == ("promise", FAST)
    assert node_of(there, "tight") == "mixed-0"
    loose = ask(there, "loose", "4h", {})
    assert (loose["kind"], loose["gpu_type"]) == ("promise", SLOW)
    assert node_of(there, "loose") == "mixed-1"
    terms = there.get("loose")["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    required = terms["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    asked = {"key": PRODUCT, "operator": "In", "values": [SLOW]}
    assert all(asked in term["matchExpressions"] for term in required)


def test_a_job_that_names_a_product_is_judged_by_its_runs_there(there: Place) -> None:
    refused = ask(there, "named-slow", "40m", {PRODUCT: SLOW})
    assert refused["kind"] == "refusal"
    assert refused["reason"]["code"] == "deadline_before_fastest_finish"
    assert ask(there, "named-fast", "40m", {PRODUCT: FAST})["kind"] == "promise"
