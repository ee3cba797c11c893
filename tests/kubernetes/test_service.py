"""The service on a real API server, with kubectl only: no client of laxity's own is involved."""

import json

import pytest

from laxity import names
from laxity_k8s.objects.affinity import node_names_for
from tests.support.kubernetes.place import (
    HARD,
    Place,
    annotations,
    complete,
    judged,
    labels,
    running,
)
from tests.support.kubernetes.service import Json, verdict_of

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]


def test_an_applied_job_is_promised_started_on_named_nodes_and_finishes(there: Place) -> None:
    there.apply(there.job("train", HARD, run_s=2.0))
    started = there.until_job("train", lambda job: running(job) or complete(job), "runs")
    said = annotations(started)
    nodes = json.loads(said[names.NODES])
    assert verdict_of(started)["kind"] == "promise"
    assert {names.PROMISED_FINISH, names.P50_FINISH, names.P90_FINISH, names.REASON} <= said.keys()
    assert set(nodes) <= (node_names_for(started["spec"]["template"]) or set())
    assert set(there.pods("train").values()) == set(nodes)
    there.until(lambda: bool(there.events("train")), "an Event about it")
    assert {"Fits", "DueFirst"} & {event["reason"] for event in there.events("train")}
    there.until_job("train", complete, "finishes")


def test_people_see_verdicts_and_classes_in_a_list_of_jobs(there: Place) -> None:
    there.apply(
        there.job("asked", HARD, run_s=1.0),
        there.job("whenever", {"epochs": "2", "epoch-estimate": "1s"}, run_s=1.0),
    )
    for name in ("asked", "whenever"):
        there.until_job(name, complete, "finishes")
    shown = there.kubectl("get", "jobs", "-L", f"{names.VERDICT_LABEL},{names.CLASS_LABEL}")
    rows = {line.split()[0]: line.split()[-2:] for line in shown.splitlines()[1:]}
    assert rows == {"asked": ["promised", "hard"], "whenever": ["forecast", "best_effort"]}


def test_a_job_that_cannot_make_it_is_refused_with_offers_and_stays_suspended(
    there: Place,
) -> None:
    there.apply(there.job("late", {**HARD, "epoch-estimate": "1h"}))
    told = there.until_job("late", judged, "has a verdict")
    verdict = verdict_of(told)
    assert (verdict["kind"], labels(told)[names.VERDICT_LABEL]) == ("refusal", "refused")
    assert "after the deadline" in annotations(told)[names.REASON]
    assert {offer["kind"] for offer in verdict["offers"]} >= {"deadline"}
    there.until(lambda: len(there.events("late")) >= 2, "Events about it")
    messages = {event["reason"]: event["message"] for event in there.events("late")}
    assert messages["DeadlineBeforeFastestFinish"] == annotations(told)[names.REASON]
    assert f"{names.DEADLINE}: 2" in messages["Offered"]
    there.apply(there.job("after", HARD, run_s=1.0))
    there.until_job("after", complete, "finishes")
    assert there.get("late")["spec"]["suspend"] is True
    assert there.pods("late") == {}


def test_an_offer_in_an_event_is_taken_up_with_kubectl(there: Place) -> None:
    there.apply(there.job("later", {**HARD, "epoch-estimate": "1h"}, run_s=1.0))
    there.until(lambda: len(there.events("later")) >= 2, "Events about it")
    offered = next(one["message"] for one in there.events("later") if one["reason"] == "Offered")
    deadline = offered.split(f"{names.DEADLINE}: ")[1].split(";")[0]
    there.kubectl("annotate", "job", "later", "--overwrite", f"{names.DEADLINE}={deadline}")
    there.until_job("later", complete, "finishes")
    assert verdict_of(there.get("later"))["kind"] == "promise"


def test_a_bad_annotation_is_answered_on_that_job_only(there: Place) -> None:
    there.apply(there.job("bad", {**HARD, "deadline": "soon"}), there.job("good", HARD, run_s=1.0))
    told = there.until_job("bad", judged, "is told")
    assert verdict_of(told)["kind"] == "refusal"
    assert "deadline" in annotations(told)[names.REASON]
    there.until(lambda: bool(there.events("bad")), "an Event about it")
    event = there.events("bad")[0]
    assert (event["type"], event["reason"]) == ("Warning", "Invalid")
    there.until_job("good", complete, "finishes")
    assert there.get("bad")["spec"]["suspend"] is True


def test_jobs_of_kueue_and_jobs_without_the_label_are_never_patched(there: Place) -> None:
    kueues = {names.MANAGED: "true", names.KUEUE_QUEUE: "theirs"}
    there.apply(
        there.job("kueues", HARD, labels=kueues),
        there.job("plain", HARD, labels={}),
        there.job("plain-runs", {}, labels={}, suspend=False),
    )
    theirs = ("kueues", "plain", "plain-runs")
    for name in theirs[:2]:
        there.until_job(name, lambda job: "Suspended" in str(job["status"]), "is settled")
    there.until_job("plain-runs", running, "runs")
    before = {name: there.get(name) for name in theirs}
    there.apply(*[there.job(f"ours-{number}", HARD, run_s=1.0) for number in range(20)])
    there.until(lambda: there.succeeded() == 20, "all of ours finish")
    assert {name: there.get(name) for name in theirs} == before
    written = there.kubectl("get", "jobs", *theirs, "--show-managed-fields", "-o", "json")
    who = {field["manager"] for job in json.loads(written)["items"] for field in managers(job)}
    assert who == {"kubectl-client-side-apply", "kube-controller-manager"}


def managers(job: Json) -> list[Json]:
    found: list[Json] = job["metadata"]["managedFields"]
    return found


@pytest.mark.parametrize("home", ["home", "lost"])
def test_a_killed_service_goes_on_with_what_the_jobs_say(there: Place, home: str) -> None:
    """Also when its own folder is lost: the Jobs are the record."""
    there.apply(there.job("first", HARD), there.job("second", {**HARD, "widths": "2"}))
    before = {name: there.until_job(name, running, "runs") for name in ("first", "second")}
    there.until(lambda: [len(there.pods(name)) for name in before] == [1, 2], "all their pods")
    pods = {name: there.pods(name) for name in before}
    there.service.kill()
    there.apply(there.job("third", HARD, run_s=1.0))
    there.service.start(home)
    there.until_job("third", complete, "finishes")
    for name, job in before.items():
        now = there.get(name)
        assert there.pods(name) == pods[name], "nothing is started twice"
        assert now["spec"] == job["spec"]
        assert verdict_of(now)["kind"] == "promise"
        assert verdict_of(now)["deadline_at"] == verdict_of(job)["deadline_at"]
        assert annotations(now)[names.STATUS] == annotations(job)[names.STATUS]


def test_a_service_killed_while_it_acts_starts_nothing_twice(there: Place) -> None:
    waiting = [f"many-{number}" for number in range(24)]
    there.apply(*[there.job(name, HARD, run_s=1.0) for name in waiting])
    for share in (1, 16):
        there.until(lambda share=share: there.judged() >= share, f"{share} verdicts")  # type: ignore[misc]
        there.service.kill()
        there.service.start()
    there.until(lambda: there.succeeded() == len(waiting), "all finish")
    assert {name: len(there.pods(name)) for name in waiting} == dict.fromkeys(waiting, 1)


def test_an_api_server_that_comes_back_finds_the_service_at_work(there: Place) -> None:
    there.apply(there.job("before", HARD))
    there.until_job("before", running, "runs")
    pods = there.pods("before")
    there.cluster.stop("kube-apiserver", hard=True)
    there.cluster.start_api_server()
    there.apply(there.job("after", HARD, run_s=1.0))
    there.until_job("after", complete, "finishes")
    assert there.pods("before") == pods
    assert verdict_of(there.get("before"))["kind"] == "promise"
