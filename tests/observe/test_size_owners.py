"""What is kept of managedFields: who wrote a Job's size."""

import pytest

from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.size_owners import is_applied, keep_size_owners
from laxity_k8s.observe.cluster_cache import ClusterCache
from tests.support.empty_cluster import Nothing
from tests.support.manifests import job

PODS: Json = {"f:template": {"f:spec": {"f:containers": {}}}}


def owned_by(**fields_by_manager: Json) -> Json:
    made = job()
    made["metadata"]["managedFields"] = [
        {"manager": manager, "operation": "Update", "fieldsV1": {"f:spec": fields}}
        for manager, fields in fields_by_manager.items()
    ]
    return made


def test_only_those_who_wrote_the_size_are_kept() -> None:
    cached = owned_by(helm={"f:suspend": {}, **PODS}, kubelet=PODS)

    keep_size_owners(cached)

    size: Json = {"f:spec": {"f:suspend": {}}}
    assert cached["metadata"]["managedFields"] == [{"manager": "helm", "fieldsV1": size}]


@pytest.mark.parametrize("manager", ["helm", "dashboard"])
@pytest.mark.parametrize(
    "fields", [{"f:suspend": {}}, {"f:parallelism": {}, "f:suspend": {}}, PODS]
)
def test_applied_jobs_are_known_as_before(manager: str, fields: Json) -> None:
    whole, cached = owned_by(**{manager: fields}), owned_by(**{manager: fields})

    keep_size_owners(cached)

    assert is_applied(cached) == is_applied(whole)
    assert is_applied(whole) == (manager == "helm" and "f:suspend" in fields)


def test_an_answer_that_is_older_than_what_is_known_is_cut_down_too() -> None:
    cache = ClusterCache(Nothing(), lambda: None)  # type: ignore[arg-type]
    cache.put_object("jobs", owned_by(helm=PODS))
    watched = owned_by(helm=PODS)

    cache.put_object("jobs", watched)

    assert watched["metadata"]["managedFields"] == []


def test_objects_without_owners_stay_as_they_are() -> None:
    plain = job()

    keep_size_owners(plain)

    assert plain == job()
