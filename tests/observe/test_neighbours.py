"""A job whose promise is in danger as pods of others hold its GPUs is told so, and not whose."""

import pytest

from laxity import names
from laxity_k8s.act.event_writer import WARNINGS
from laxity_k8s.act.neighbours import blame_neighbours
from laxity_k8s.act.patches import job_patch
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.status_annotation import verdict_text
from laxity_scheduler.model.decision import Promised
from laxity_scheduler.model.reasons import reason
from tests.support.builders import promise
from tests.support.manifests import CREATED_AT, job, pod
from tests.support.seen_nodes import Seen

DUE_AT = CREATED_AT + 3600.0


def foreign(node: str, gpus: int) -> Json:
    made = pod(None, of="secret", node=node)
    made["metadata"]["namespace"] = "elsewhere"
    made["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    return made


@pytest.mark.parametrize(
    ("others", "code", "words"),
    [
        pytest.param([foreign("a", 3)], "promise_in_danger", "hold 3 of 8 GPUs", id="taken"),
        pytest.param([], "promise_in_danger", "", id="not by others"),
        pytest.param([foreign("a", 3)], "promise_moved", "", id="no danger"),
    ],
)
def test_a_job_in_danger_is_told_of_the_gpus_that_others_hold(
    others: list[Json], code: str, words: str
) -> None:
    own = pod(0, of="busy", node="b")
    made = job(verdict=verdict_text(promise(DUE_AT)))
    busy = job("busy", suspend=False, nodes='["b"]')
    seen = Seen(made, busy, own, *others)
    state = seen.look()
    row = state.by_id["default/job"]
    why = reason(code, p90_at=DUE_AT + 60.0, late_s=60.0, moved_s=60.0, workers=1)
    decision = Promised(row.id, promise(DUE_AT), why)
    told = blame_neighbours(state, row, [decision], seen.snapshot.foreign_gpus)
    assert (told is not None) is bool(words)
    patch = job_patch(made, row, [decision], now=CREATED_AT + 10.0, taken=told)
    assert patch is not None
    text = patch.patch.body["metadata"]["annotations"][names.REASON]
    assert words in text
    assert "secret" not in text
    assert [code for code, _ in patch.events][-1] == ("gpus_taken_by_others" if words else code)
    assert "gpus_taken_by_others" in WARNINGS


def test_gpus_that_a_pod_of_higher_priority_is_nominated_for_are_not_free() -> None:
    """The job that made way would start there again, and find the place taken."""
    waiting = foreign("", 4)
    waiting["status"] = {"phase": "Pending", "nominatedNodeName": "a"}
    assert Seen(waiting).busy() == {"a": 4, "b": 0}
    bound = foreign("a", 4)
    assert Seen(bound).busy() == {"a": 4, "b": 0}


def test_a_worker_that_others_make_way_for_counts_once() -> None:
    made = job("busy", suspend=False, nodes='["b"]')
    own = pod(0, of="busy", node="", phase="Pending")
    own["status"]["nominatedNodeName"] = "b"
    assert Seen(made, own).busy() == {"a": 0, "b": 1}
