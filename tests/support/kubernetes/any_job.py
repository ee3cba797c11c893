"""A Job that admission lets pass."""

from typing import Any


def job(
    name: str,
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    suspend: bool = True,
) -> dict[str, Any]:
    ours = {"laxity.dev/managed": "true"} if labels is None else labels
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": ours, "annotations": annotations or {}},
        "spec": {
            "suspend": suspend,
            "completionMode": "Indexed",
            "parallelism": 1,
            "completions": 1,
            "template": {
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}
            },
        },
    }
