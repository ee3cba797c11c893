"""What a namespace's quotas and limit ranges allow bounds its Jobs, in words."""

from collections.abc import Callable
from queue import SimpleQueue
from types import SimpleNamespace

import pytest

from laxity import names
from laxity_k8s.act.adoption import write_refusal
from laxity_k8s.cluster_api import ApiError, Change, Json, Kind, Listing, Watch
from laxity_k8s.objects.quantities import parse_quantity
from laxity_k8s.objects.quotas import limits_of
from laxity_k8s.objects.status_annotation import JobStatusRecord, digest_terms, verdict_text
from laxity_k8s.observe.quota_watch import KINDS, QuotaWatch
from laxity_scheduler.model.decision import Admit
from laxity_scheduler.model.job import Forecast, Refusal
from laxity_scheduler.model.reasons import reason
from tests.support.builders import promise
from tests.support.manifests import CREATED_AT, job, pod
from tests.support.quota_place import Place

WHY = reason("order", policy="test")
GPUS = "requests.nvidia.com/gpu"


def quota(namespace: str = "default", **hard: str) -> Json:
    keys = {"gpus": GPUS, "cpu": "requests.cpu"}
    written = {keys.get(key, key): text for key, text in hard.items()}
    metadata = {"namespace": namespace, "name": "team"}
    return {"metadata": metadata, "spec": {"hard": written}}


def limit_range(scope: str, **most: str) -> Json:
    limit = {
        "type": scope,
        "max": {key.replace("gpus", "nvidia.com/gpu"): most[key] for key in most},
    }
    return {"metadata": {"namespace": "default", "name": "small"}, "spec": {"limits": [limit]}}


def foreign(gpus: str) -> Json:
    taken = pod(None, of="theirs", node="a")
    taken["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": gpus, "cpu": "2"}}
    return taken


def test_a_quota_cuts_widths_and_what_pods_of_others_use_is_not_ours() -> None:
    place = Place(job(widths="1,2,4"))

    def widths(*quotas: Json) -> tuple[int, ...]:
        return place.look(*quotas).by_id["default/job"].widths

    assert widths() == (1, 2, 4)
    assert widths(quota(gpus="3")) == (1, 2)
    assert widths(quota(gpus="8"), quota(pods="1")) == (1,)
    assert widths(quota("elsewhere", gpus="0")) == (1, 2, 4)
    place.put(foreign("2"))
    assert widths(quota(gpus="3")) == (1,)
    place.put(foreign("3"))
    place.look(quota(gpus="3"))
    assert place.words == (
        "quota team of its namespace allows requests.nvidia.com/gpu 3, pods of others use 3 of it; "
        "each worker asks for 1, and it needs at least 1 worker"
    )
    place.put({**foreign("3"), "status": {"phase": "Succeeded"}})
    assert widths(quota(gpus="3")) == (1, 2), "asked again as soon as they are gone"


def test_a_running_job_keeps_its_width_and_a_waiting_one_its_promise() -> None:
    running = job("running", width=2, suspend=False, nodes='["a", "a"]', widths="1,2,4")
    place = Place(running, job(verdict=verdict_text(promise(CREATED_AT + 3600.0))))
    state = place.look(quota(gpus="0"))
    assert state.by_id["default/running"].widths == (1, 2)
    waiting = place.cache.jobs["default/job"]
    told = write_refusal(waiting, place.snapshot.bad)
    assert told is not None
    assert told.code == "namespace_limits"
    assert names.VERDICT not in told.patch.body["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("scope", "most", "words"),
    [
        ("Container", {"gpus": "1"}, "allows nvidia.com/gpu 1 per container; 2 is asked for"),
        ("Pod", {"gpus": "2"}, ""),
        ("Pod", {"memory": "1Gi"}, "allows memory 1.07374e+09 per pod; 2.14748e+09 is asked for"),
        ("PersistentVolumeClaim", {"storage": "1"}, ""),
    ],
)
def test_a_limit_range_bounds_one_container_or_pod(
    scope: str, most: dict[str, str], words: str
) -> None:
    made = job(gpus=2)
    made["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = "2Gi"
    place = Place(made)
    state = place.look(ranges=(limit_range(scope, **most),))
    assert (state.jobs == ()) is bool(words)
    assert not words or words in place.words


def test_a_default_request_counts_in_quotas_and_for_jobs_that_are_left_out() -> None:
    place = Place(job(widths="1,2,4"))

    def widths(default: str) -> tuple[int, ...]:
        given = {"type": "Container", "defaultRequest": {"cpu": default}}
        one = {**limit_range("Container"), "spec": {"limits": [given]}}
        state = place.look(quota(cpu="8"), ranges=(one,))
        return tuple(width for row in state.jobs for width in row.widths)

    assert widths("2") == (1, 2, 4)
    assert widths("3") == (1, 2), "counted anew as soon as it changes"
    place.snapshot.reject("default/job", "the API server refused its patch")
    assert widths("3") == ()
    place.put(pod(None, of="theirs"))
    assert widths("3") == (), "until somebody changes it"
    assert widths("8") == (1,)


def test_quotas_with_scopes_and_nonsense_bound_nobody() -> None:
    scoped = quota(gpus="0")
    scoped["spec"]["scopes"] = ["BestEffort"]
    assert limits_of([scoped, quota(gpus="many")], {})["default"].left == {}


@pytest.mark.parametrize(
    ("text", "number"),
    [("500m", 0.5), ("4Gi", 4 * 2.0**30), ("2", 2.0), (3, 3.0), ("1e3", 1000.0), ("2k", 2000.0),
     ("1e-3", 0.001), ("2E+3", 2000.0), (".5", 0.5), ("64Ki", 65536.0), ("1E", 1e18),
     (".", None), ("1e-", None),
     ("", None), ("-1", None), ("1x", None), ([], None), ("9" * 400, None)],
)  # fmt: skip
def test_quantities_are_read_as_kubernetes_writes_them(text: object, number: float | None) -> None:
    assert parse_quantity(text) == number


def test_quotas_that_cannot_be_read_are_taken_to_be_as_before() -> None:
    found: dict[str, Listing] = {}
    changes: list[int] = []

    def list_all(kind: Kind) -> Listing:
        if kind not in found:
            raise ApiError("forbidden", status=403)
        return found[kind]

    watch = QuotaWatch(list_all, lambda: changes.append(1))
    watch.close()
    watch._thread.join()  # from now on only this test reads
    watch.read_once()
    assert not any(watch.found)
    used = {**quota(gpus="2"), "status": {"used": {GPUS: "1"}}}
    found |= {"resourcequotas": Listing((used,), "1"), "limitranges": Listing((), "1")}
    watch.read_once()
    found["resourcequotas"] = Listing(({**used, "status": {}},), "2")
    watch.read_once()
    assert len(changes) == 1, "what is used is no news"
    found.clear()
    watch.read_once()
    assert watch.found[0] == (quota(gpus="2"),)


def test_a_changed_quota_is_read_at_once_and_a_used_one_is_not() -> None:
    reads: SimpleQueue[Kind] = SimpleQueue()
    told: dict[Kind, Callable[[Change], None]] = {}
    used = {**quota(gpus="2"), "status": {"used": {GPUS: "1"}}}

    def list_all(kind: Kind) -> Listing:
        reads.put(kind)
        return Listing((used,) if kind == "resourcequotas" else (), "7")

    def follow(kind: Kind, *, since: str, on_change: Callable[[Change], None]) -> Watch:
        assert since == "7"
        told[kind] = on_change
        if len(told) == len(KINDS):
            reads.put("jobs")  # all is followed
        return SimpleNamespace(stop=lambda: told.pop(kind))

    news: SimpleQueue[None] = SimpleQueue()
    watch = QuotaWatch(list_all, lambda: news.put(None), follow=follow)
    assert [reads.get(timeout=30.0) for _ in range(3)] == [*KINDS, "jobs"]
    news.get(timeout=30.0)
    told["resourcequotas"](Change("MODIFIED", {**used, "status": {}}))
    told["limitranges"](Change("ADDED", limit_range("Pod", gpus="2")))
    assert [reads.get(timeout=30.0) for _ in range(2)] == [*KINDS]
    watch.close()
    assert reads.empty(), "what is used is no news"
    assert not told


def test_jobs_wait_in_few_words_while_their_namespace_uses_up_its_quota() -> None:
    place = Place(job("first"), job("second"), job("elsewhere"))
    team = quota(gpus="1")
    state = place.look(team)
    start = [Admit(f"default/{name}", 1, ("a",), WHY) for name in ("first", "second")]
    full = place.snapshot.bounds.without_room(start, state.by_id, place.snapshot.shown)
    assert full == {"default/second"}, "they would both start"

    running = job("first", suspend=False, nodes='["a"]')
    forecast = Forecast(CREATED_AT, CREATED_AT, 0.0, reason("forecast", p90_at=CREATED_AT))
    waiting = job("second", verdict=verdict_text(forecast))
    waiting["metadata"]["annotations"][names.STATUS] = JobStatusRecord(
        terms=digest_terms(waiting)
    ).to_text()
    place.put(running, waiting)
    state = place.look(team)
    assert "default/first" in state.by_id
    why = place.snapshot.bad["default/second"].refusal.reason
    name = state.by_id["default/first"].quota
    assert why == reason("quota_used_up", quota=name), (
        "in the words of the policy that lets it wait"
    )
    assert why.text == (
        "it waits until pods of its namespace leave more of "
        "requests.nvidia.com/gpu in quota default/team"
    )
    assert state.by_id["default/elsewhere"].asked, "a new one is judged all the same"
    told = write_refusal(waiting, place.snapshot.bad)
    assert told is not None
    assert names.VERDICT not in told.patch.body["metadata"]["annotations"]

    ended = {**running, "status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    place.put(ended)
    assert "default/second" in place.look(team).by_id


def test_promised_jobs_of_a_used_up_quota_stay_in_the_plan_and_the_policy_knows_what_it_allows() -> (
    None
):
    promised = job("promised", verdict=verdict_text(promise(CREATED_AT + 3600.0)))
    promised["metadata"]["annotations"][names.STATUS] = JobStatusRecord(
        terms=digest_terms(promised)
    ).to_text()
    running = job("running", suspend=False, nodes='["a"]')
    place = Place(running, promised, foreign("2"))
    name = f"{GPUS} in quota default/team"

    assert place.look().quotas is None
    state = place.look(quota(gpus="3"))
    assert state.quotas == {name: 1}, "pods of others use two"
    assert state.quota_left == {name: 0}
    assert {row.id: row.quota for row in state.jobs} == {
        "default/running": name,
        "default/promised": name,
    }
    place.put({**running, "metadata": {**running["metadata"], "annotations": {names.EPOCHS: "x"}}})
    state = place.look(quota(gpus="3"))
    assert state.quotas == {name: 0}, "what a Job without a row uses is nobody's"
    assert state.by_id["default/promised"].quota == name
    place.look(quota(gpus="3", pods="2"))
    assert "default/promised" in place.snapshot.bad, "pods are not planned over time"


def test_a_refused_job_keeps_its_own_reason_while_its_quota_is_used_up() -> None:
    refused = job("refused", verdict=verdict_text(Refusal(reason("deadline_in_the_past", due="x"))))
    refused["metadata"]["annotations"][names.STATUS] = JobStatusRecord(
        terms=digest_terms(refused)
    ).to_text()
    place = Place(job("first", suspend=False, nodes='["a"]'), refused)

    row = place.look(quota(gpus="1")).by_id["default/refused"]

    assert isinstance(row.verdict, Refusal)
    assert row.verdict.reason.code == "deadline_in_the_past"
