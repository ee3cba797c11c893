"""Growth onto nodes where a running Job's pods may not go is cut to what may, and said."""

import json
from typing import Any

import pytest

from laxity import json_tree, names
from laxity_k8s.act.patches import JobPatch, job_patch
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.jobs import job_row
from laxity_k8s.objects.node_rows.affinity import affinity_patch
from laxity_k8s.objects.status_annotation import JobStatusRecord
from laxity_scheduler.model.decision import Resize
from laxity_scheduler.model.job import Job
from laxity_scheduler.model.reasons import reason
from tests.support.manifests import CREATED_AT, job

NOW = CREATED_AT + 100.0
WHY = reason("order", policy="test")


def on_a_and_b(width: int) -> Json:
    """A running Job whose pods keep off node c, which was held for others when it started."""
    made = job(width=width, suspend=False, nodes=json.dumps(["a"] * width), widths="1,2,3,4")
    state = JobStatusRecord(resumed_at=CREATED_AT, width_changed_at=CREATED_AT, wanted=width)
    made["metadata"]["annotations"][names.STATUS] = state.to_text()
    template = json_tree.merge_patch(
        made["spec"]["template"], affinity_patch(made, ["a", "b"], ["c"])
    )
    return {**made, "spec": {**made["spec"], "template": template}}


def grown(made: Json, *nodes: str) -> JobPatch:
    row = job_row(made, now=NOW)
    assert isinstance(row, Job)
    found = job_patch(made, row, [Resize("default/job", len(nodes), nodes, "now", WHY)], now=NOW)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("nodes", "width"),
    [
        pytest.param(("a", "b", "b"), 3, id="all of them may go there"),
        pytest.param(("a", "b", "c", "c"), 2, id="those that may go there do"),
        pytest.param(("a", "b", "c", "b"), 2, id="without a gap in the indexes"),
    ],
)
def test_a_job_grows_by_those_workers_that_may_go_there(nodes: Any, width: int) -> None:
    body = grown(on_a_and_b(1), *nodes).patch.body
    assert (body["spec"]["parallelism"], body["spec"]["completions"]) == (width, width)
    assert json.loads(body["metadata"]["annotations"][names.NODES]) == list(nodes[:width])


def test_growth_that_can_only_go_elsewhere_is_said_and_changes_nothing() -> None:
    found = grown(on_a_and_b(1), "a", "c")
    assert "spec" not in found.patch.body
    (code, words), *_ = found.events
    assert code == "pods_may_not_go_there"
    assert "2 workers would need c" in words


def test_it_is_said_once() -> None:
    made = on_a_and_b(1)
    told = json_tree.merge_patch(made, grown(made, "a", "c").patch.body)
    row = job_row(told, now=NOW)
    assert isinstance(row, Job)
    again = Resize("default/job", 2, ("a", "c"), "now", WHY)
    assert job_patch(told, row, [again], now=NOW) is None


def test_shrinking_is_never_held_up() -> None:
    made = on_a_and_b(2)
    assert grown(made, "z").patch.body["spec"]["parallelism"] == 1
