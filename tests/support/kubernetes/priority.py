"""A priority class, and pods of others that have it."""

from tests.support.kubernetes.service import Json

FOREIGN = "urgent-inference"


def priority_class() -> Json:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": FOREIGN},
        "value": 1_000,
    }
