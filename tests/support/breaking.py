"""Two Jobs in a cluster, a good one and one about which functions raise that a test breaks."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from laxity import json_tree
from laxity_k8s.cluster_api import Json
from laxity_k8s.live_cluster import LiveCluster

BAD, GOOD = "default/bad", "default/good"
SAID = "ZeroDivisionError: nobody thought of this"
Breaking = Callable[[Any, str], None]


def breaking(monkeypatch: pytest.MonkeyPatch) -> Breaking:
    """`breaks(owner, name)`: that function raises for whatever has to do with the bad Job."""

    def replace(owner: Any, name: str) -> None:
        whole = getattr(owner, name)

        def broken(*arguments: Any, **options: Any) -> Any:
            if re.search(r"\bbad\b", repr((arguments, options))):
                raise ZeroDivisionError("nobody thought of this")
            return whole(*arguments, **options)

        monkeypatch.setattr(owner, name, broken)

    return replace


def put(world: LiveCluster, thing: Json, kind: Any = "jobs") -> None:
    """Into the cluster, past all that checks it."""
    world.api.rows.put(kind, thing)  # type: ignore[attr-defined]


def seen(world: LiveCluster, *ids: str) -> None:
    """Wait until the cache has these Jobs as they are in the cluster."""

    def known() -> bool:
        return all(
            json_tree.get_in(world._cache.jobs.get(one), "metadata", "resourceVersion")
            == world.api.get("jobs", one)["metadata"]["resourceVersion"]
            for one in ids
        )

    while not known():
        assert world.wait(10.0)


def touch(world: LiveCluster, job_id: str) -> None:
    """Somebody changes the Job's status, which means nothing to anybody."""
    there = world.api.get("jobs", job_id)
    put(world, {**there, "status": {"observed": there["metadata"]["resourceVersion"]}})
    seen(world, job_id)


def named(made: Json) -> Json:
    """A Job whose template can be told from that of others."""
    tolerations = [{"key": made["metadata"]["name"], "operator": "Exists"}]
    made["spec"]["template"]["spec"]["tolerations"] = tolerations
    return made
