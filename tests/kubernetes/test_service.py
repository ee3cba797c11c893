"""The service on a real API server, with kubectl only: no client of laxity's own is involved."""

import json

import pytest

from laxity import names
from laxity_k8s.objects.node_rows.affinity import preferred_nodes
from tests.support.kubernetes.place import (
    HARD,
    Place,
    annotations,
    complete,
    judged,
    labels,
    running,
)
from tests.support.kubernetes.service import verdict_of

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]


def test_an_applied_job_is_promised_leans_to_named_nodes_and_finishes(there: Place) -> None:
    there.apply(there.job("train", HARD, run_s=2.0))
    started = there.until_job("train", lambda job: running(job) or complete(job), "runs")
    said = annotations(started)
    nodes = json.loads(said[names.NODES])
    assert verdict_of(started)["kind"] == "promise"
    assert {names.PROMISED_FINISH, names.P50_FINISH, names.P90_FINISH, names.REASON} <= said.keys()
    assert set(nodes) == preferred_nodes(started["spec"]["template"])
    assert set(there.pods("train").values()) == set(nodes)
    why = {"Fits", "DueFirst"}
    there.until(lambda: bool(why & {event["reason"] for event in there.events("train")}), "why")
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
