"""GPUs that count as given to a Job: no more than it can still use, and no less."""

import json
from types import SimpleNamespace

import pytest

from laxity import names
from laxity_k8s.cluster_api import Change
from tests.support.kubernetes.history import GPU, Json, given_twice

TEMPLATE = {"spec": {"containers": [{"resources": {"limits": {GPU: "1"}}}]}}


def job(name: str, **spec: object) -> tuple[str, Change]:
    meta: Json = {"name": name, "uid": name, "namespace": "default", "resourceVersion": "1"}
    meta |= {
        "labels": {names.MANAGED: "true"},
        "annotations": {names.NODES: json.dumps(["a", "a"])},
    }
    full = {"parallelism": 2, "template": TEMPLATE, **spec}
    return "jobs", Change("MODIFIED", {"metadata": meta, "spec": full, "status": {}})


def pod(of: str, number: int, phase: str) -> tuple[str, Change]:
    meta: Json = {"name": f"{of}-{number}", "uid": f"{of}-{number}", "resourceVersion": "1"}
    meta["ownerReferences"] = [{"uid": of}]
    spec = TEMPLATE["spec"] | {"nodeName": "a"}
    return "pods", Change("MODIFIED", {"metadata": meta, "spec": spec, "status": {"phase": phase}})


@pytest.mark.parametrize(
    ("completions", "succeeded", "is_full"),
    [(2, 2, False), (2, 1, True), (3, 2, True), (None, 0, True), (None, 1, False)],
    ids=["done", "one to go", "another one to go", "a new queue", "a queue that runs dry"],
)
def test_a_job_without_indexes_holds_gpus_for_what_it_has_yet_to_do(
    completions: int | None, succeeded: int, is_full: bool
) -> None:
    done = [pod("first", number, "Succeeded") for number in range(succeeded)]
    changes = [job("first", completions=completions), *done, job("second", completions=2)]
    history = SimpleNamespace(events=lambda: iter(changes))
    assert bool(given_twice(history, {"a": 2})) is is_full  # type: ignore[arg-type]
