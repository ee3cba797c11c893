"""What every live World must do among people: who change Jobs by hand, err, cancel and ask why.

A LiveStage is a Stage on a cluster that can be touched behind the World's back.
"""

import itertools
from collections.abc import Callable
from typing import Protocol

import pytest

from laxity import json_tree, names
from laxity_k8s.cluster_api import ApiError, ClusterApi, Json, Patch
from laxity_k8s.objects import pods
from laxity_k8s.objects.conditions import read_condition
from laxity_scheduler.http.job_service import PIN_ANNOTATIONS, UNPIN_ANNOTATIONS
from laxity_scheduler.live import LiveWorld, Released
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Admit, Forecasted, Preempt, Promised, Resize
from laxity_scheduler.model.job import Forecast, Promise
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan
from laxity_scheduler.plan_check import PlanError, check_plan
from tests.contract.world_exam import WHY, Question, Stage, admit, do, free, row
from tests.support.manifests import indexed_job


class LiveStage(Stage, Protocol):
    @property
    def world(self) -> LiveWorld: ...

    @property
    def api(self) -> ClusterApi: ...

    def template(self) -> Json: ...

    def another(self) -> LiveWorld:
        """A World over the same cluster that was opened anew, as after a restart."""
        ...


def by_hand(stage: LiveStage, job_id: str, body: Json) -> Json:
    """What an administrator does with kubectl."""
    return stage.api.patch(Patch("jobs", job_id, body))


def manifest(stage: LiveStage, name: str, **annotations: str) -> Json:
    return indexed_job(name, stage.template(), {"epochs": "5", **annotations})


def a_plan_made_before_somebody_changed_the_job_is_not_carried_out(stage: LiveStage) -> None:
    job_id = stage.submit("stale")
    state = stage.until(lambda state: job_id in state.by_id, "it is seen")
    by_hand(stage, job_id, {"metadata": {"annotations": {names.WIDTHS: "2"}}})
    plan = Plan((Admit(job_id, 1, ("a",), WHY),))
    check_plan(plan, state)
    stage.world.carry_out(plan)
    assert stage.api.get("jobs", job_id)["spec"]["suspend"] is True
    after = stage.until(lambda state: row(state, job_id).widths == (2,), "the change is seen")
    assert row(after, job_id).workers == 0


def a_job_let_go_by_hand_is_pinned_and_counted(stage: LiveStage) -> None:
    job_id = stage.submit("let-go")
    do(stage, Forecasted(job_id, Forecast(1e9, 2e9, 0.0, WHY), WHY))
    stage.until(lambda _: "Suspended" in str(stage.api.get("jobs", job_id)["status"]), "settled")
    by_hand(stage, job_id, {"spec": {"suspend": False}})
    state = stage.until(lambda state: row(state, job_id).pinned, "it is pinned")
    assert row(state, job_id).workers == 1
    stage.until(lambda _: names.PIN in str(stage.api.get("jobs", job_id)), "it says so")


def a_job_scaled_by_hand_is_pinned_until_the_annotation_is_removed(stage: LiveStage) -> None:
    job_id = stage.submit("scaled")
    admit(stage, job_id, "a")
    by_hand(stage, job_id, {"spec": {"parallelism": 2, "completions": 2}})
    state = stage.until(lambda state: row(state, job_id).pinned, "it is pinned")
    assert row(state, job_id).workers == 2
    stage.until(lambda _: names.PIN in str(stage.api.get("jobs", job_id)), "it says so")
    by_hand(stage, job_id, {"metadata": {"annotations": {names.PIN: None}}})
    state = stage.until(lambda state: not row(state, job_id).pinned, "it is let go")
    assert row(state, job_id).workers == 2


def a_released_job_runs_on_untouched_until_it_is_taken_back(stage: LiveStage) -> None:
    """Asked to stop before, its workers wait for nothing any more."""
    job_id, other = stage.submit("alone"), stage.submit("other")
    admit(stage, job_id, "a", "a")
    do(stage, Preempt(job_id, "epoch", other, WHY))
    stage.until(lambda state: row(state, job_id).stop_requested_at is not None, "it is asked")
    stage.world.annotate(job_id, PIN_ANNOTATIONS)
    state = stage.until(lambda state: row(state, job_id).pinned, "it is pinned")
    assert (row(state, job_id).workers, row(state, job_id).stop_requested_at) == (2, None)
    assert free(state) == {"a": 2, "b": 4}
    assert not stage.world.signal(job_id).stop
    with pytest.raises(PlanError, match="the job is pinned"):
        check_plan(Plan((Preempt(job_id, "now", other, WHY),)), state)
    stage.world.annotate(job_id, UNPIN_ANNOTATIONS)
    state = stage.until(lambda state: not row(state, job_id).pinned, "it is taken back")
    assert row(state, job_id).workers == 2
    do(stage, Preempt(job_id, "now", other, WHY))
    stage.until(lambda state: row(state, job_id).workers == 0, "it is stopped")


def a_job_that_makes_no_sense_harms_only_itself(stage: LiveStage) -> None:
    good = stage.submit("good")
    for number, text in enumerate(("soon", "", "-5m", "\u0000", "x" * 100_000)):
        made = manifest(stage, f"bad-{number}", deadline=text)
        stage.api.create("jobs", made)
    unknown = manifest(stage, "bad-unknown", dedline="5m")
    stage.api.create("jobs", unknown)
    told = ["bad-unknown", *(f"bad-{number}" for number in range(5))]
    stage.until(
        lambda _: all(
            "invalid"
            in json_tree.annotations_of(stage.api.get("jobs", f"default/{name}")).get(
                names.VERDICT, ""
            )
            for name in told
        ),
        "all are told",
    )
    assert [job.id for job in stage.world.observe().jobs] == [good]
    admit(stage, good, "a")


def a_job_put_right_is_decided_on(stage: LiveStage) -> None:
    stage.api.create("jobs", manifest(stage, "mended", deadline="soon"))
    job_id = "default/mended"
    stage.until(lambda _: names.REASON in str(stage.api.get("jobs", job_id)), "it is told")
    by_hand(stage, job_id, {"metadata": {"annotations": {names.DEADLINE: "1h"}}})
    state = stage.until(lambda state: job_id in state.by_id, "it is seen")
    assert row(state, job_id).asked


def a_changed_deadline_asks_again(stage: LiveStage) -> None:
    job_id = stage.submit("amended")
    do(stage, Forecasted(job_id, Forecast(1e9, 2e9, 0.0, WHY), WHY))
    assert not row(stage.world.observe(), job_id).asked
    stage.world.annotate(job_id, {names.DEADLINE: "3h"})
    job = row(stage.world.observe(), job_id)
    assert job.asked
    assert job.deadline_at == pytest.approx(job.submitted_at + 10_800)


def others_jobs_are_passed_over_and_their_gpus_are_busy(stage: LiveStage) -> None:
    made = manifest(stage, "somebody-elses")
    made["metadata"]["labels"] = {}
    made["spec"]["suspend"] = False
    kueue = manifest(stage, "kueues")
    kueue["metadata"]["labels"][names.KUEUE_QUEUE] = "team"
    stage.api.create("jobs", made)
    stage.api.create("jobs", kueue)
    state = stage.until(lambda state: sum(free(state).values()) == 7, "its GPU is busy")
    assert state.jobs == ()
    told = json_tree.annotations_of(stage.api.get("jobs", "default/kueues"))
    assert not set(names.OUTPUTS) & set(told)


def a_world_opened_anew_sees_the_same(stage: LiveStage) -> None:
    victim, other, third = (stage.submit(name) for name in ("first", "second", "third"))
    admit(stage, victim, "a", "a")
    promise = Promise(9e9, 1e9, 2e9, ((3e9, 2),), WHY)
    do(stage, Promised(other, promise, WHY), Preempt(victim, "now", other, WHY))
    stage.until(lambda state: not row(state, victim).terminating_workers, "it has gone")
    admit(stage, third, "b")
    before = stage.world.observe()
    world = stage.another()
    after = world.observe()
    assert after.jobs == before.jobs
    assert after.nodes == before.nodes
    assert after.holds == before.holds


def the_same_key_attaches_and_another_job_of_that_name_is_refused(stage: LiveStage) -> None:
    from laxity_scheduler.live import DuplicateJobError

    first = stage.world.submit(manifest(stage, "keyed", idempotency_key="nightly-1"))
    again = stage.world.submit(manifest(stage, "keyed", idempotency_key="nightly-1"))
    assert again["metadata"]["uid"] == first["metadata"]["uid"]
    for stranger in (manifest(stage, "keyed"), manifest(stage, "keyed", idempotency_key="other")):
        with pytest.raises(DuplicateJobError):
            stage.world.submit(stranger)


def a_signal_tells_of_stops_and_widths_and_its_generation_grows(stage: LiveStage) -> None:
    job_id = stage.submit("signalled")
    admit(stage, job_id, "a", "a")
    signals = [stage.world.signal(job_id)]
    for decision in (
        Resize(job_id, 1, ("a",), "epoch", WHY),
        Resize(job_id, 1, ("a",), "now", WHY),
        Preempt(job_id, "epoch", "", WHY),
    ):
        stage.until(lambda state: not row(state, job_id).terminating_workers, "settled")
        do(stage, decision)
        signals.append(stage.world.signal(job_id))
    assert [signal.workers for signal in signals] == [2, 1, 1, 1]
    assert [signal.stop for signal in signals] == [False, False, False, True]
    for earlier, later in itertools.pairwise(signals):
        alike = (earlier.stop, earlier.workers) == (later.stop, later.workers)
        assert (later.generation > earlier.generation) is not alike


def a_cancelled_job_and_its_pods_are_gone(stage: LiveStage) -> None:
    job_id = stage.submit("cancelled")
    admit(stage, job_id, "a", "a")
    stage.world.cancel(job_id)
    stage.world.cancel(job_id)
    state = stage.until(lambda state: free(state) == {"a": 4, "b": 4}, "its GPUs are free")
    assert state.jobs == ()
    with pytest.raises(ApiError) as gone:
        stage.api.get("jobs", job_id)
    assert gone.value.status == 404


def a_job_made_anew_under_its_name_is_another_job(stage: LiveStage) -> None:
    """Deleted by hand and applied with another template, while its pods are still there."""
    job_id = stage.submit("anew", stop_s=2.0)
    admit(stage, job_id, "a", "a")
    before = stage.world.job(job_id)["metadata"]["uid"]
    stage.api.delete("jobs", job_id)
    stage.api.create("jobs", manifest(stage, "anew", widths="3"))
    state = stage.until(
        lambda state: (
            job_id in state.by_id and stage.world.job(job_id)["metadata"]["uid"] != before
        ),
        "the new one is seen",
    )
    job = row(state, job_id)
    assert (job.workers, job.terminating_workers, job.widths) == (0, 0, (3,))
    assert (job.verdict, job.resumed_at, job.preemptions, job.attained_gpu_s) == (None, None, 0, 0)
    stage.until(lambda state: free(state) == {"a": 4, "b": 4}, "the old one's GPUs are free")


def every_decision_leaves_its_reason_in_the_jobs_events(stage: LiveStage) -> None:
    job_id = stage.submit("explained")
    admit(stage, job_id, "a")
    stage.until(
        lambda _: any(
            event["involvedObject"]["name"] == "explained" and event["message"] == WHY.text
            for event in stage.api.list("events").items
        ),
        "an Event says why",
    )
    assert json_tree.annotations_of(stage.world.job(job_id))[names.REASON] == WHY.text


def what_is_told_of_a_job_is_in_its_events(stage: LiveStage) -> None:
    job_id = stage.submit("stalled")
    notices = [reason("stalled", waited_s=125.0, usual_s=0.5), reason("stall_over", waited_s=130.0)]

    for notice in notices:
        stage.world.tell(job_id, notice)

    def events() -> set[tuple[str, str, str]]:
        about = [
            event
            for event in stage.api.list("events").items
            if event["involvedObject"]["name"] == "stalled"
        ]
        return {(event["reason"], event["type"], event["message"]) for event in about}

    told = {
        ("Stalled", "Warning", notices[0].text),
        ("StallOver", "Normal", notices[1].text),
    }
    stage.until(lambda _: told <= events(), "both Events")


def labels_and_taints_of_nodes_are_followed_as_they_change(stage: LiveStage) -> None:
    made, key = manifest(stage, "choosy"), "example.com/kind"
    made["spec"]["template"]["spec"]["nodeSelector"] = {key: "large"}
    stage.world.submit(made)
    plain = stage.submit("plain")

    def nodes_of(job_id: str) -> Callable[[ClusterState], frozenset[str] | None]:
        return lambda state: state.eligible_nodes(row(state, job_id))

    def change(node: str, body: Json) -> None:
        stage.api.patch(Patch("nodes", node, body))

    choosy = nodes_of("default/choosy")
    try:
        state = stage.until(lambda state: choosy(state) == frozenset(), "no node has the label")
        assert f"a, b: label {key} is missing, large is asked" in str(state.sets)
        change("a", {"metadata": {"labels": {key: "large"}}})
        stage.until(lambda state: choosy(state) == frozenset({"a"}), "one has it")
        change("b", {"metadata": {"labels": {key: "large"}}})
        stage.until(lambda state: choosy(state) is None, "all have it")
        taint = {"key": key, "value": "reserved", "effect": "NoSchedule"}
        change("a", {"spec": {"taints": [taint]}})
        state = stage.until(lambda state: choosy(state) == frozenset({"b"}), "one is tainted")
        assert nodes_of(plain)(state) == frozenset({"b"})
        assert f"a: taint {key}=reserved:NoSchedule is not tolerated" in str(state.sets)
    finally:
        for node in "ab":
            change(node, {"metadata": {"labels": {key: None}}, "spec": {"taints": None}})
    state = stage.until(lambda state: choosy(state) == frozenset(), "labels are gone")
    assert nodes_of(plain)(state) is None


def a_job_stopped_right_after_its_start_is_free_when_no_pod_of_it_can_come_any_more(
    stage: LiveStage,
) -> None:
    """Its controller comes behind: it may be making the pods of a Job that is suspended by now."""
    job_id = stage.submit("hasty", widths=(4,))
    for _ in range(5):
        stage.until(lambda state: not row(state, job_id).terminating_workers, "it can start")
        do(stage, Admit(job_id, 4, ("a",) * 4, WHY))

        def gone(state: ClusterState) -> bool:
            if row(state, job_id).workers:
                if row(state, job_id).start_seen:
                    do(stage, Preempt(job_id, "now", "", WHY))
                return False
            done = free(state)["a"] == 4
            assert not done or read_condition(stage.world.job(job_id), "Suspended") == "True"
            return done

        stage.until(gone, "its GPUs are free")
        mine = [pod for pod in stage.api.list("pods").items if pods.owner_of(pod)[0] == job_id]
        assert [pod for pod in mine if pods.node_of(pod) and not pods.is_finished(pod)] == []
    assert row(stage.world.observe(), job_id).preemptions == 5


def released_jobs_are_plain_jobs_of_the_cluster(stage: LiveStage) -> None:
    runs, waits = stage.submit("released"), stage.submit("waiting")
    admit(stage, runs, "a")
    assert stage.world.release() == Released(2, (waits,))
    for job_id in (runs, waits):
        there = stage.api.get("jobs", job_id)
        assert not {names.MANAGED, names.CLASS_LABEL} & set(json_tree.labels_of(there))
        assert not set(names.OUTPUTS) & set(json_tree.annotations_of(there))
        assert there["spec"]["suspend"] is (job_id == waits), "what waits is started by nobody"
    assert stage.world.observe().jobs == ()


LIVE_EXAM: tuple[Question, ...] = (
    a_plan_made_before_somebody_changed_the_job_is_not_carried_out,
    a_job_let_go_by_hand_is_pinned_and_counted,
    a_job_scaled_by_hand_is_pinned_until_the_annotation_is_removed,
    a_released_job_runs_on_untouched_until_it_is_taken_back,
    a_job_that_makes_no_sense_harms_only_itself,
    a_job_put_right_is_decided_on,
    a_changed_deadline_asks_again,
    others_jobs_are_passed_over_and_their_gpus_are_busy,
    a_world_opened_anew_sees_the_same,
    the_same_key_attaches_and_another_job_of_that_name_is_refused,
    a_signal_tells_of_stops_and_widths_and_its_generation_grows,
    a_cancelled_job_and_its_pods_are_gone,
    a_job_made_anew_under_its_name_is_another_job,
    every_decision_leaves_its_reason_in_the_jobs_events,
    what_is_told_of_a_job_is_in_its_events,
    labels_and_taints_of_nodes_are_followed_as_they_change,
    a_job_stopped_right_after_its_start_is_free_when_no_pod_of_it_can_come_any_more,
    released_jobs_are_plain_jobs_of_the_cluster,
)
