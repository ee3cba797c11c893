"""Each decision is one merge patch, and a decision repeated is none."""

import json
from typing import Any

import pytest

from laxity import json_tree, names
from laxity_k8s.act.patches import JobPatch, Turn, job_patch
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.jobs import job_row
from laxity_k8s.objects.seal import Seal
from laxity_k8s.objects.status_annotation import JobStatusRecord, read_refused_deadline, read_status
from laxity_k8s.observe.cluster_cache import ClusterCache
from laxity_k8s.observe.snapshot import Snapshot
from laxity_profiler.estimate import Progress
from laxity_scheduler.live import Report
from laxity_scheduler.model.decision import Admit, Decision, Preempt, Promised, Refuse, Resize, Wait
from laxity_scheduler.model.job import Job, Offer, Promise, Refusal
from laxity_scheduler.model.reasons import reason
from tests.support.builders import promise
from tests.support.empty_cluster import Nothing
from tests.support.manifests import CREATED_AT, job, node

WHY = reason("order", policy="test")
NOW = CREATED_AT + 100.0


def patched(made: Json, *decisions: Decision, **more: Any) -> JobPatch:
    found = patch_or_none(made, *decisions, **more)
    assert found is not None
    return found


def patch_or_none(made: Json, *decisions: Decision, **more: Any) -> JobPatch | None:
    row = job_row(made, now=NOW)
    assert isinstance(row, Job)
    return job_patch(made, row, decisions, now=NOW, **more)


def after(made: Json, *decisions: Decision) -> Json:
    done: Json = json_tree.merge_patch(made, patched(made, *decisions).patch.body)
    return done


def running(width: int = 2, **said: Any) -> Json:
    made = job(width=width, suspend=False, nodes=json.dumps(["a"] * width), **said)
    state = JobStatusRecord(
        resumed_at=CREATED_AT, width_changed_at=CREATED_AT, since=CREATED_AT, wanted=width
    )
    made["metadata"]["annotations"][names.STATUS] = state.to_text()
    return made


def notes(made: Json) -> dict[str, str]:
    return json_tree.annotations_of(made)


def test_a_start_is_one_patch_on_the_revision_that_was_decided_on() -> None:
    found = patched(job(), Admit("default/job", 2, ("a", "b"), WHY))
    spec = found.patch.body["spec"]
    assert (spec["suspend"], spec["parallelism"], spec["completions"]) == (False, 2, 2)
    assert found.patch.body["metadata"]["resourceVersion"] == "7"
    assert (found.turn, found.events) == (Turn.START, (("order", WHY.text),))


def test_wait_of_a_job_without_verdict_counts_as_laxitys() -> None:
    seal, waiting = Seal(b"k" * 32), job()
    found = patched(waiting, Wait("default/job", reason("waits_for_steps", steps="pretrain")))
    sealed = seal.seal_patch(found.patch, waiting)
    told: Json = json_tree.merge_patch(waiting, sealed.body)
    assert notes(seal.believe_job(told))[names.REASON] == "it waits for pretrain"
    assert found.events == (("waits_for_steps", "it waits for pretrain"),)


def test_a_start_leaves_behind_all_that_a_successor_has_to_know() -> None:
    made = after(job(), Admit("default/job", 2, ("a", "b"), WHY))
    state = read_status(made)
    assert (state.resumed_at, state.wanted, state.since) == (NOW, 2, NOW)
    assert json.loads(notes(made)[names.NODES]) == ["a", "b"]
    assert notes(made)[names.REASON] == WHY.text


def named_nodes(made: Json) -> list[str]:
    affinity = made["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    preferred = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    return [item["preference"]["matchFields"][0]["values"][0] for item in preferred]


def test_a_start_leans_the_pods_to_the_nodes_of_the_plan_and_requires_none() -> None:
    found = patched(job(), Admit("default/job", 2, ("b", "b"), WHY))
    made = json_tree.merge_patch(job(), found.patch.body)
    assert named_nodes(made) == ["b"]
    assert list(made["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]) == [
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    assert not found.reset_first


def test_a_move_clears_the_start_time_first_and_staying_does_not() -> None:
    there = after(job(), Admit("default/job", 1, ("a",), WHY))
    there["spec"]["suspend"], there["status"] = True, {"startTime": "2026-11-21T08:00:00Z"}
    again = patched(there, Admit("default/job", 1, ("a",), WHY))
    elsewhere = patched(there, Admit("default/job", 1, ("b",), WHY))
    assert (again.reset_first, elsewhere.reset_first) == (False, True)
    assert "template" not in again.patch.body["spec"]
    assert named_nodes(json_tree.merge_patch(there, elsewhere.patch.body)) == ["b"]


@pytest.mark.parametrize(
    ("width", "turn"),
    [pytest.param(1, Turn.SCALE_IN, id="in"), pytest.param(4, Turn.SCALE_OUT, id="out")],
)
def test_a_resize_patches_both_counts_together_and_accounts_the_old_width(
    width: int, turn: Turn
) -> None:
    made = running(2, resize_to="1")
    found = patched(made, Resize("default/job", width, ("a",) * width, "now", WHY))
    done = json_tree.merge_patch(made, found.patch.body)
    assert found.patch.body["spec"] == {"parallelism": width, "completions": width}
    assert found.turn == turn
    assert names.RESIZE_TO not in notes(done)
    assert (read_status(done).attained_gpu_s, read_status(done).width_changed_at) == (200.0, NOW)


def test_a_stop_at_the_epochs_end_says_since_when_and_for_whom_and_keeps_the_first() -> None:
    made = running()
    asked = after(made, Preempt("default/job", "epoch", "default/other", WHY))
    assert json.loads(notes(asked)[names.STOP]) == {"at": NOW, "for": "default/other"}
    assert asked["spec"] == made["spec"]
    assert patch_or_none(asked, Preempt("default/job", "epoch", "default/third", WHY)) is None


def test_a_stop_now_suspends_counts_and_remembers_for_whom_the_gpus_were_freed() -> None:
    made = running(2, stop='{"at": 1.0}', resize_to="1")
    done = after(made, Preempt("default/job", "now", "default/other", WHY))
    state = read_status(done)
    assert done["spec"]["suspend"] is True
    assert not {names.STOP, names.RESIZE_TO, names.NODES} & set(notes(done))
    assert (state.preemptions, state.wanted, state.queued_at) == (1, 0, NOW)
    assert (state.freed_for, state.freed_nodes, state.freed_at) == (
        "default/other",
        ("a", "a"),
        NOW,
    )
    assert state.attained_gpu_s == 200.0


def test_starts_that_fail_in_a_row_are_put_off_and_any_other_stop_ends_the_row() -> None:
    why = reason("pods_do_not_fit", running=0, workers=2, why="", then="")
    made, said = running(2), []
    for _ in range(3):
        made = after(made, Preempt("default/job", "now", "", why))
        said.append((read_status(made).failed_starts, read_status(made).not_before - NOW))
        made = after(made, Admit("default/job", 2, ("a", "a"), WHY))
    assert said == [(1, 0.0), (2, 60.0), (3, 120.0)]
    made = after(made, Preempt("default/job", "now", "default/other", WHY))
    assert (read_status(made).failed_starts, read_status(made).not_before) == (0, 0.0)


def test_kubernetes_is_told_to_kill_what_outlasts_its_wall_limit_at_each_start() -> None:
    started = after(job(wall_limit="90.5s"), Admit("default/job", 1, ("a",), WHY))
    assert started["spec"]["activeDeadlineSeconds"] == 91
    endless = after(job(), Admit("default/job", 1, ("a",), WHY))
    assert "activeDeadlineSeconds" not in endless["spec"]


def test_the_end_of_a_link_is_no_preemption_and_links_that_are_cut_in_one_epoch_are_counted() -> (
    None
):
    ended, cut = (reason("link_ended", epoch=3, limit_s=60.0), reason("link_cut", limit_s=60.0))
    made = running(1, wall_limit="1m", epochs="9")
    counted = []
    for why in (ended, cut, cut):
        made = after(made, Preempt("default/job", "now", "default/job", why))
        state = read_status(made)
        counted.append((state.preemptions, state.cut_links))
        made = after(made, Admit("default/job", 1, ("a",), WHY))
    assert counted == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize(
    ("deadline_at", "finish"),
    [
        pytest.param(NOW + 900, "2026-11-21T08:11:40Z", id="the same promise stands still"),
        pytest.param(NOW + 1800, "2026-11-21T08:13:20Z", id="another deadline is another one"),
    ],
)
def test_the_finish_of_a_promise_is_that_with_which_it_was_given(
    deadline_at: float, finish: str
) -> None:
    given = Promise(NOW + 900, NOW + 300, NOW + 600, ((NOW + 600, 2),), WHY)
    moved = Promise(deadline_at, NOW + 400, NOW + 700, ((NOW + 700, 2),), WHY)
    made = after(job(deadline="20m"), Promised("default/job", given, WHY))

    made = after(made, Promised("default/job", moved, WHY))

    assert notes(made)[names.PROMISED_FINISH] == finish
    assert notes(made)[names.P90_FINISH] == "2026-11-21T08:13:20Z"


def test_a_promise_is_written_for_machines_and_for_people() -> None:
    promise = Promise(NOW + 900, NOW + 300, NOW + 600, ((NOW + 600, 2),), WHY)
    made = after(job(deadline="20m"), Promised("default/job", promise, WHY))
    assert json_tree.labels_of(made)[names.VERDICT_LABEL] == "promised"
    assert notes(made)[names.PROMISED_FINISH] == "2026-11-21T08:11:40Z"
    assert notes(made)[names.P50_FINISH] == "2026-11-21T08:06:40Z"
    row = job_row(made)
    assert isinstance(row, Job)
    assert (row.verdict, row.asked) == (promise, False)


def test_a_wait_is_written_once() -> None:
    made = after(job(), Wait("default/job", WHY))
    assert notes(made)[names.REASON] == WHY.text
    assert patch_or_none(made, Wait("default/job", WHY)) is None


def test_a_verdict_and_a_start_are_one_patch() -> None:
    promise = Promise(NOW + 900, NOW + 300, NOW + 600, ((NOW + 600, 1),), WHY)
    found = patched(
        job(deadline="20m"),
        Promised("default/job", promise, WHY),
        Admit("default/job", 1, ("a",), WHY),
        cycle=12,
    )
    assert found.patch.body["spec"]["suspend"] is False
    said = found.patch.body["metadata"]["annotations"]
    assert {names.VERDICT, names.STATUS, names.NODES} <= set(said)
    assert said[names.CYCLE] == "12"
    assert len(found.events) == 2


def refuses(made: Json, asked: str = "5m") -> tuple[Json, JobPatch | None]:
    """A promised Job after another deadline was asked for and refused, and the patch that says it."""
    made["metadata"]["annotations"][names.DEADLINE] = asked
    why = reason("capacity_promised_to_others", needed_gpus=1, free_gpus=0, late_s=90.0)
    offer = Offer("deadline", CREATED_AT + 700.0, (1,), CREATED_AT + 600.0, NOW)
    patch = patch_or_none(made, Refuse("default/job", Refusal(why, (offer,)), why))
    return (made if patch is None else json_tree.merge_patch(made, patch.patch.body)), patch


def test_a_refused_deadline_stands_beside_the_promise_and_is_said_once() -> None:
    due_at = CREATED_AT + 3600.0
    given = Promised("default/job", promise(due_at), reason("fits", p90_at=due_at, slack_s=1.0))
    promised = after(job(deadline="1h"), given)
    assert notes(promised)[names.PROMISED_DEADLINE] == "2026-11-21T09:00:00Z"
    refused, patch = refuses(promised)
    assert patch is not None
    assert [code for code, _ in patch.events] == ["capacity_promised_to_others", "offered"]
    assert read_refused_deadline(refused)["deadline"] == "2026-11-21T08:05:00Z"
    assert refused["metadata"]["labels"][names.VERDICT_LABEL] == "promised"
    row = job_row(refused)
    assert isinstance(row, Job)
    assert (row.verdict, row.asked) == (promise(due_at), False)
    moved = after(refused, Promised("default/job", promise(due_at), reason("fits", p90_at=NOW)))
    assert read_refused_deadline(moved) == read_refused_deadline(refused)
    assert notes(moved)[names.REASON].startswith("P90 finish")
    _, again = refuses(moved)
    assert again is None, "the same refusal is no news"
    taken = Promised("default/job", promise(CREATED_AT + 300.0), reason("fits", p90_at=NOW))
    assert names.REFUSED_DEADLINE not in notes(after(moved, taken))


def test_a_refused_deadline_is_asked_again_each_epoch_and_each_minute() -> None:
    due_at = CREATED_AT + 3600.0
    given = Promised("default/job", promise(due_at), reason("fits", p90_at=due_at, slack_s=1.0))
    refused, _ = refuses(after(job(deadline="1h"), given))
    epochs = [0]

    def report(_: str) -> Report:
        return Report(progress=Progress(epochs_done=epochs[0]))

    cache = ClusterCache(Nothing(), lambda: None)  # type: ignore[arg-type]
    seen = Snapshot(cache, report, fit_within_s=60.0)
    running = {**refused, "spec": {**refused["spec"], "suspend": False}}
    for kind, thing in (("nodes", node("a")), ("jobs", running)):
        cache.put_object(kind, thing)  # type: ignore[arg-type]

    def asks(at_s: float) -> bool:
        with cache.take_dirty() as (touched, nodes):
            state = seen.take_state(touched, nodes=nodes, now=CREATED_AT + at_s, cycle=1)
        return state.by_id["default/job"].asked

    assert [asks(100.0), asks(159.0)] == [False, False]
    assert seen.due_at == CREATED_AT + 160.0
    assert [asks(160.0), asks(160.0)] == [True, False], "in one state alone"
    epochs[0] = 1
    assert [asks(161.0), asks(162.0)] == [True, False]
    assert [asks(221.0), asks(222.0)] == [True, False]
    assert not asks(400.0), "that deadline has passed"
