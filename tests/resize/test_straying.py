"""Growth waits while a worker of somebody else is on its way to a node that it might take instead."""

from typing import Any

import pytest

from laxity import json_tree
from laxity_k8s.act.growth_guard import jobs_to_postpone, may_stray
from laxity_k8s.cluster_api import Json
from laxity_k8s.error_isolation import Guard
from laxity_k8s.objects.affinity import affinity_patch, preference_weights
from laxity_k8s.objects.jobs import job_row
from laxity_scheduler.model.decision import Admit, Decision, Resize
from laxity_scheduler.model.job import Job
from laxity_scheduler.model.reasons import reason
from tests.support.manifests import CREATED_AT, job

WHY = reason("order", policy="test")


def started(nodes: str, roomy: str = "") -> Json:
    """A Job that runs on these nodes, a letter each, and may grow onto the roomy ones."""
    made = job(width=len(nodes), suspend=False, widths="1,2,3,4")
    template = json_tree.merge_patch(
        made["spec"]["template"], affinity_patch(made, list(nodes), list(roomy))
    )
    return {**made, "spec": {**made["spec"], "template": template}}


@pytest.mark.parametrize(
    ("first", "new", "taken", "strays"),
    [
        pytest.param(("a", ""), "a", "b", False, id="it may go to one node only"),
        pytest.param(("a", "b"), "b", "a", True, id="the scheduler likes the other one better"),
        pytest.param(("a", "b"), "ab", "b", False, id="it goes to the one meant for it first"),
        pytest.param(("ab", ""), "b", "a", True, id="it likes both alike"),
        pytest.param(("ab", ""), "b", "b", False, id="the same node: there is room for both"),
        pytest.param(("a", "b"), "b", "c", False, id="a node where it may not go"),
        pytest.param(("aab", ""), "b", "a", True, id="by how many were meant for each"),
        pytest.param(("a", "b"), "b", "", False, id="nobody is on the way"),
    ],
)
def test_growth_strays_where_the_scheduler_has_a_choice(
    first: Any, new: str, taken: str, *, strays: bool
) -> None:
    template = started(*first)["spec"]["template"]
    assert may_stray(template, set(new), set(taken)) is strays


def test_without_an_affinity_it_may_go_anywhere() -> None:
    assert may_stray(job()["spec"]["template"], {"a"}, {"z"})
    assert preference_weights(job()["spec"]["template"]) == {}


def held_back(*decisions: Decision, on_its_way: str = "") -> set[str]:
    """Of a plan about `default/job`, on a and perhaps b, and `default/other`, which waits."""
    jobs = {"default/job": started("a", "b"), "default/other": job("other")}
    rows = {name: job_row(one, now=CREATED_AT) for name, one in jobs.items()}
    good = {name: row for name, row in rows.items() if isinstance(row, Job)}
    by_job: dict[str, list[Decision]] = {}
    for one in decisions:
        assert isinstance(one, Admit | Resize)
        by_job.setdefault(one.job, []).append(one)
    return jobs_to_postpone(by_job, good, jobs, lambda _: set(on_its_way), Guard("test"))


GROWS = Resize("default/job", 3, ("a", "b", "b"), "now", WHY)


@pytest.mark.parametrize(
    ("beside", "on_its_way", "waits"),
    [
        pytest.param((), "", False, id="alone"),
        pytest.param((Admit("default/other", 1, ("a",), WHY),), "", True, id="a start beside it"),
        pytest.param((Admit("default/other", 1, ("b",), WHY),), "", False, id="where it goes too"),
        pytest.param((), "a", True, id="a start of before that is not there yet"),
    ],
)
def test_growth_waits_for_starts_where_it_might_go(
    beside: Any, on_its_way: str, *, waits: bool
) -> None:
    want = {"default/job"} if waits else set()
    assert held_back(GROWS, *beside, on_its_way=on_its_way) == want


@pytest.mark.parametrize(
    "calm",
    [
        Resize("default/job", 1, ("a",), "now", WHY),
        Resize("default/job", 3, ("a", "b", "b"), "epoch", WHY),
    ],
)
def test_nothing_else_waits(calm: Resize) -> None:
    assert held_back(calm, Admit("default/other", 1, ("a",), WHY)) == set()
