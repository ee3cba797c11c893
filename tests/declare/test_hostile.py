"""Whatever somebody writes into a Job, it is an answer, never an accident."""

import copy
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laxity import json_tree
from laxity.backoff import Backoff
from laxity.job.qos import QoSError
from laxity_k8s.act.job_submission import prepare_manifest
from laxity_k8s.cluster_api import ApiError, Json
from laxity_k8s.local import launch
from laxity_k8s.local.job_admission import admit_job, apply_patch, with_status
from laxity_k8s.local.job_controller import new_pod, reconcile_job
from laxity_k8s.objects import jobs
from tests.support.manifests import CREATED, CREATED_AT, job

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)


def paths(value: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Ways to all values inside."""
    inside = value.items() if isinstance(value, dict) else []
    found = [way for key, inner in inside for way in ((*at, key), *paths(inner, (*at, key)))]
    for number, inner in enumerate(value if isinstance(value, list) else []):
        found += [(*at, number), *paths(inner, (*at, number))]
    return found


FULL = job("job", deadline="20m", widths="1,2", idempotency_key="k", attempt="1")
FULL["spec"]["template"]["spec"] |= {
    "volumes": [{"name": "v"}],
    "terminationGracePeriodSeconds": 5,
    "containers": [
        {
            "name": "train",
            "command": ["python"],
            "args": ["x"],
            "env": [{"name": "A", "value": "b"}, {"name": "B", "valueFrom": {"fieldRef": {}}}],
            "resources": {"limits": {"nvidia.com/gpu": "1"}},
        }
    ],
}
FULL["spec"]["podFailurePolicy"] = {"rules": [{"action": "Ignore"}]}


def twisted(way: tuple[str | int, ...], value: Any) -> Json:
    """The full Job with one value replaced."""
    made: Json = copy.deepcopy(FULL)
    *before, last = way
    inner: Any = made
    for step in before:
        inner = inner[step]
    inner[last] = value
    return made


def outcome(act: Callable[[], Json]) -> Json | None:
    """What was made; None if it was refused as invalid, which is the only other way."""
    try:
        return act()
    except ApiError as error:
        if error.status != 422:
            raise
        return None


WAYS = [way for way in paths(FULL) if way[0] in {"metadata", "spec"} and len(way) > 1]


@given(st.sampled_from(WAYS), VALUES)
def test_a_twisted_job_is_admitted_or_refused_and_then_runs_or_not(
    way: tuple[str | int, ...], value: Any
) -> None:
    made = twisted(way, value)
    server = {"namespace": "default", "uid": "u", "creationTimestamp": CREATED}
    made["metadata"] = {**json_tree.mapping_at(made, "metadata"), **server}
    there = outcome(lambda: admit_job(made))
    if there is None:
        return
    there["spec"]["suspend"] = False
    step = reconcile_job(there, [], now=CREATED_AT, backoff=Backoff())
    for pod in step.create[:2]:
        launch.build_launch(pod, ambient={}, extra={}, cwd=Path("/"))
    jobs.job_row(there)


@given(st.sampled_from(WAYS), VALUES)
def test_a_twisted_patch_is_taken_or_refused(way: tuple[str | int, ...], value: Any) -> None:
    patch: Any = value
    for step in reversed([step for step in way if isinstance(step, str)]):
        patch = {step: patch}
    after = outcome(lambda: apply_patch(copy.deepcopy(FULL), patch)) or FULL
    outcome(lambda: with_status(after, {"status": value}))


@given(st.sampled_from(WAYS), VALUES)
def test_a_twisted_manifest_is_prepared_or_named(way: tuple[str | int, ...], value: Any) -> None:
    with suppress(QoSError):
        jobs.spec_of(prepare_manifest(twisted(way, value), now=CREATED_AT))


@given(VALUES)
def test_anything_at_all_is_a_bad_manifest(value: Any) -> None:
    with pytest.raises(QoSError):
        jobs.spec_of(prepare_manifest(value, now=CREATED_AT))


def test_a_pod_of_a_full_job_is_launched() -> None:
    pod = new_pod(FULL, 0, CREATED_AT)
    what = launch.build_launch(pod, ambient={}, extra={}, cwd=Path("/"))
    assert what.argv == ("python", "x")
    assert what.env["A"] == "b"
    assert json_tree.get_in(pod, "spec", "hostname") == "job-0"
