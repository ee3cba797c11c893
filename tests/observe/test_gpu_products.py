"""Which product the GPUs of a node are, and on which product a Job's workers are."""

import pytest

from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.node_rows.accelerator_nodes import find_product
from tests.support.manifests import job, node, pod
from tests.support.seen_nodes import Seen

PRODUCT = "nvidia.com/gpu.product"


def on(name: str, product: str) -> Json:
    return node(name, labels={PRODUCT: product})


def asking(name: str, product: str) -> Json:
    made = job(name)
    made["spec"]["template"]["spec"]["nodeSelector"] = {PRODUCT: product}
    return made


def products(seen: Seen) -> dict[str, str]:
    return {row.id.partition("/")[2]: row.workload.gpu_type for row in seen.look().jobs}


@pytest.mark.parametrize(
    ("resource", "labels", "product"),
    [
        pytest.param("nvidia.com/gpu", {PRODUCT: "Tesla-T4"}, "Tesla-T4", id="NVIDIA"),
        pytest.param(
            "nvidia.com/gpu.shared", {PRODUCT: "Tesla-T4-SHARED"}, "Tesla-T4-SHARED", id="shared"
        ),
        pytest.param(
            "nvidia.com/mig-1g.5gb",
            {PRODUCT: "A100", "nvidia.com/mig-1g.5gb.product": "A100-MIG-1g.5gb"},
            "A100-MIG-1g.5gb",
            id="a slice",
        ),
        pytest.param("amd.com/gpu", {"amd.com/gpu.product-name": "MI300X"}, "MI300X", id="AMD"),
        pytest.param(
            "nvidia.com/gpu",
            {"cloud.google.com/gke-accelerator": "nvidia-l4"},
            "nvidia-l4",
            id="GKE",
        ),
        pytest.param("nvidia.com/gpu", {"disk": "ssd"}, "", id="no label: one kind"),
        pytest.param("amd.com/gpu", {PRODUCT: "A100"}, "amd.com/gpu", id="the label of another"),
    ],
)
def test_a_product_is_read_from_the_labels_of_the_discovery(
    resource: str, labels: dict[str, str], product: str
) -> None:
    assert find_product(labels, resource)[1] == product


def test_nodes_carry_their_product() -> None:
    seen = Seen(on("a", "A100"), on("b", "T4"))
    assert {row.id: row.gpu_type for row in seen.look().nodes} == {"a": "A100", "b": "T4"}


def test_a_job_that_names_a_product_is_predicted_on_it() -> None:
    seen = Seen(on("a", "A100"), on("b", "T4"), asking("fast", "A100"), asking("slow", "T4"))
    assert products(seen) == {"fast": "A100", "slow": "T4"}


def test_a_job_that_may_use_several_products_is_on_none_of_them_before_it_starts() -> None:
    assert products(Seen(on("a", "A100"), on("b", "T4"), job("any"))) == {"any": ""}


def test_a_running_job_is_on_the_product_of_its_nodes() -> None:
    wide = job("wide", width=2, suspend=False)
    seen = Seen(on("a", "A100"), on("b", "T4"), wide, pod(0, of="wide", node="b"))
    seen.put(pod(1, of="wide", node="b"))
    assert products(seen) == {"wide": "T4"}


def test_a_job_follows_a_label_that_comes_late() -> None:
    """The discovery labels a node some time after it is there."""
    seen = Seen(job("any"))
    assert products(seen) == {"any": ""}
    seen.put(on("a", "A100"), on("b", "A100"))
    assert products(seen) == {"any": "A100"}
    seen.put(on("b", "T4"))
    assert products(seen) == {"any": ""}


def test_a_start_keeps_to_a_product_only_where_the_job_could_use_others() -> None:
    seen = Seen(on("a", "A100"), on("b", "T4"), job("any"), asking("tied", "T4"))
    seen.look()
    assert seen.snapshot.product_label("default/any", ["b"]) == (PRODUCT, "T4")
    assert seen.snapshot.product_label("default/tied", ["b"]) is None
    assert seen.snapshot.product_label("default/any", ["a", "b"]) is None
