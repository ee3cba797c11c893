"""Jobs over HTTP: verdicts, waiting for news, cancelling, releasing."""

import asyncio
import json
import logging
import re
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from laxity.instants import format_rfc3339
from laxity_scheduler.http import long_poll
from laxity_scheduler.http.decision_rows import fold_repeats
from laxity_scheduler.live import Released
from tests.support.builders import Curve
from tests.support.memory_world import MemoryWorld
from tests.support.services import Json, manifest, staged, wait_until


def test_a_job_with_enough_time_is_promised_and_starts(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4)) as stage:
        view = stage.run("a", deadline="1h")
    assert (view["state"], view["verdict"], view["class"]) == ("running", "promised", "hard")
    assert view["promised_p90_at"] <= view["deadline_at"]
    assert view["width_history"][0][1] == view["workers"]
    assert view["reason_code"] in ("due_first", "planned_growth", "grow_into_idle")


def test_a_job_without_enough_time_is_refused_with_offers_and_holds_nothing(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=100.0)) as stage:
        stage.submit("a", deadline="10s")
        view = stage.until("default/a", lambda view: view["state"] == "refused", "refused")
    assert (view["verdict"], view["outcome"], view["workers"]) == ("refused", "refused", 0)
    assert view["reason_code"] == "deadline_before_fastest_finish"
    assert [offer["kind"] for offer in view["offers"]]


def test_taking_a_counter_offer_gets_the_promise_that_was_offered(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=100.0)) as stage:
        stage.submit("a", deadline="10s")
        refused = stage.until("default/a", lambda view: view["state"] == "refused", "refused")
        kinds = [offer["kind"] for offer in refused["offers"]]
        number = kinds.index("deadline") + 1
        answer = stage.http.post("/v1/jobs/default/a/accept", json={"offer": number})
    assert answer.status_code == 200
    assert answer.json()["verdict"] == "promised"
    offered = refused["offers"][number - 1]["deadline_at"]
    assert answer.json()["deadline_at"] == pytest.approx(offered, abs=0.002)


def test_an_offer_that_has_expired_is_refused_as_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=100.0)) as stage:
        stage.submit("a", deadline="10s")
        refused = stage.until("default/a", lambda view: view["state"] == "refused", "refused")
        number = [offer["kind"] for offer in refused["offers"]].index("deadline") + 1
        later = refused["offers"][number - 1]["deadline_at"] + 49.0
        monkeypatch.setattr(
            "laxity_scheduler.http.job_service.CLOCK", SimpleNamespace(now=lambda: later)
        )
        answer = stage.http.post("/v1/jobs/default/a/accept", json={"offer": number})
    assert answer.status_code == 409
    assert "expired 49s ago" in answer.json()["error"]["message"]


def row(job: str, kind: str, code: str, at: float, workers: int = 0) -> SimpleNamespace:
    body = orjson.dumps({"workers": workers} if workers else {})
    return SimpleNamespace(
        job=job, kind=kind, reason_code=code, reason=f"{code} {at}", at=at, cycle=int(at), body=body
    )


def test_the_same_decision_again_is_one_with_how_often_and_since() -> None:
    rows = [
        row("a", "wait", "no_free_gpus", 1.0),
        row("b", "resize", "grow_into_idle", 2.0, workers=2),
        row("a", "wait", "no_free_gpus", 3.0),
        row("b", "resize", "grow_into_idle", 4.0, workers=4),
        row("a", "wait", "held_for_promises", 5.0),
        row("a", "wait", "no_free_gpus", 6.0),
    ]
    said = [(one["job"], one["first_at"], one["at"], one["times"]) for one in fold_repeats(rows)]
    assert said == [
        ("b", 2.0, 2.0, 1),
        ("a", 1.0, 3.0, 2),
        ("b", 4.0, 4.0, 1),
        ("a", 5.0, 5.0, 1),
        ("a", 6.0, 6.0, 1),
    ]


def test_an_address_that_there_is_not_is_said_to_be_none(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4)) as stage:
        answer = stage.http.get("/x/v1/jobs")
    assert answer.status_code == 404
    assert "there is no GET /x/v1/jobs here" in answer.json()["error"]["message"]


def test_an_offer_that_does_not_exist_is_a_conflict_that_says_which_do(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4)) as stage:
        stage.submit("a", deadline="1h")
        stage.until("default/a", lambda view: view["verdict"] == "promised", "promised")
        answer = stage.http.post("/v1/jobs/default/a/accept", json={"offer": 1})
    assert answer.status_code == 409
    assert "no counter-offers" in answer.json()["error"]["message"]


def test_a_probe_of_an_unknown_model_runs_two_epochs_and_then_the_job_is_judged(
    tmp_path: Path,
) -> None:
    unknown = Curve(epoch_s=1.0, unknown=frozenset({"mlp"}))
    with staged(tmp_path, MemoryWorld(4), predictor=unknown) as stage:
        stage.submit("a", deadline="1h")
        refused = stage.until("default/a", lambda view: view["state"] == "refused", "refused")
        number = [offer["kind"] for offer in refused["offers"]].index("probe") + 1
        stage.http.post("/v1/jobs/default/a/accept", json={"offer": number})
        probe = stage.until("default/a-probe", lambda view: view["workers"] > 0, "running")
        stage.learning.in_use = Curve(epoch_s=1.0)
        stage.world.finished("default/a-probe")
        judged = stage.until("default/a", lambda view: view["verdict"] == "promised", "promised")
    assert (probe["epochs"], probe["class"]) == (2, "best_effort")
    assert refused["reason_code"] == "unknown_model_needs_profiling"
    assert judged["deadline_at"] == refused["deadline_at"]


def test_a_verdict_that_came_sooner_than_it_was_asked_for_is_answered_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_poll, "VERDICT_WAIT_S", 3600.0)
    with staged(tmp_path, MemoryWorld(1)) as stage:
        since = stage.service.completed
        stage.run("a", deadline="1h")
        stage.world.wake()
        wait_until(lambda: stage.service.completed > since + 1, "two cycles")
        asked = long_poll.wait_for_verdict("default/a", stage.desk, stage.service, since=since)
        view = asyncio.run(asyncio.wait_for(asked, 20.0))
    assert view["verdict"] == "promised"


def test_a_refused_amendment_changes_nothing_and_a_granted_one_moves_the_deadline(
    tmp_path: Path,
) -> None:
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=100.0)) as stage:
        before = stage.run("a", deadline="2h")
        refused = stage.http.post("/v1/jobs/default/a/amend", json={"deadline": "30s"}).json()
        stands = stage.http.get("/v1/jobs/default/a").json()
        granted = stage.http.post("/v1/jobs/default/a/amend", json={"deadline": "3h"}).json()
    assert (refused["verdict"], refused["amended"]) == ("refused", False)
    assert (stands["verdict"], stands["deadline_at"]) == ("promised", before["deadline_at"])
    assert granted["deadline_at"] == pytest.approx(before["deadline_at"] + 3600.0, abs=0.01)
    assert granted["verdict"] == "promised"


def test_a_refused_amendment_is_explained_with_the_deadline_that_was_asked_for(
    tmp_path: Path,
) -> None:
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=100.0)) as stage:
        stage.run("a", deadline="2h")
        refused = stage.http.post("/v1/jobs/default/a/amend", json={"deadline": "30s"}).json()

        def amendments() -> list[Json]:
            chain = stage.http.get("/v1/jobs/default/a/explain").json()["chain"]
            return [row for row in chain if row["decision"]["kind"] == "amend"]

        wait_until(lambda: bool(amendments()), "the refusal in explain")
        (row,), view = amendments(), stage.http.get("/v1/jobs/default/a").json()
    asked_at = view["submitted_at"] + 30.0
    assert row["reason_code"] == refused["reason_code"]
    assert row["reason"].startswith(
        f"a deadline of {format_rfc3339(asked_at, 'seconds')} was asked"
    )
    assert row["reason"].endswith(refused["reason"])
    assert view["verdict"] == "promised"


def test_the_log_has_a_line_for_each_verdict(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logger = "laxity_scheduler.service.publisher"
    with (
        caplog.at_level(logging.INFO, logger=logger),
        staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=100.0)) as stage,
    ):
        stage.run("a", deadline="2h")
        stage.submit("b", deadline="5s")
        stage.until("default/b", lambda view: view["state"] == "refused", "refused")

    lines = [row.message for row in caplog.records if row.name == logger]
    lines = [re.sub(r"(; \w+): .*", r"\1", re.sub(r"\d{4}-\S+Z", "AT", line)) for line in lines]
    assert lines == [
        "default/a: promised, deadline AT, P90 finish AT; due_first",
        "default/b: refused, deadline AT, P90 finish AT; deadline_before_fastest_finish",
    ]


def _runs_and_was_told(view: dict[str, Any]) -> bool:
    return view["workers"] > 0 and not view["finish_pending"]


def test_a_reader_who_waits_is_told_as_soon_as_the_job_changes(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4)) as stage:
        stage.submit("a", deadline="1h")
        view = stage.until("default/a", _runs_and_was_told, "running, its finish worked out")
        told: list[Any] = []
        query = {"wait_s": 20, "seen": view["revision"]}
        waiting = threading.Thread(
            target=lambda: told.append(stage.http.get("/v1/jobs/default/a", params=query).json())
        )
        waiting.start()
        wait_until(lambda: bool(stage.service.notifier.subscribers("job:")), "a reader who waits")
        stage.world.finished("default/a")
        waiting.join(timeout=20.0)
    assert told[0]["state"] == "finished"
    assert told[0]["outcome"] == "kept"
    assert told[0]["width_history"][-1][1] == 0


def test_the_same_key_attaches_and_another_job_of_that_name_is_a_duplicate(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4)) as stage:
        first = stage.http.post("/v1/jobs", json=manifest("a", key="k1"))
        again = stage.http.post("/v1/jobs", json=manifest("a", key="k1"))
        other = stage.http.post("/v1/jobs", json=manifest("a", key="k2"))
    assert (first.json()["attached"], again.json()["attached"]) == (False, True)
    assert (first.status_code, again.status_code, other.status_code) == (201, 200, 409)
    assert first.json()["uid"] == again.json()["uid"]
    assert other.json()["error"]["code"] == "duplicate"


def test_a_job_links_to_the_flow_run_that_attached_to_it_last(tmp_path: Path) -> None:
    pages = [f"http://127.0.0.1:4200/runs/flow-run/{number}" for number in (1, 2)]
    with staged(tmp_path, MemoryWorld(4)) as stage:
        first = stage.submit("a", key="k1", followed_by=pages[0])
        stage.until("default/a", lambda view: view["followed_by"] == pages[0], "followed by 1")
        stage.submit("a", key="k1", followed_by=pages[1])
        again = stage.until("default/a", lambda view: view["followed_by"] == pages[1], "by 2")
        stage.submit("a", key="k1")  # by laxity submit, of which there is no page
        by_hand = stage.http.get("/v1/jobs/default/a").json()
    assert first["uid"] == again["uid"]
    assert by_hand["followed_by"] == pages[1]


def test_a_cancelled_job_stays_visible_as_cancelled(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4)) as stage:
        stage.run("a", deadline="1h")
        stage.http.delete("/v1/jobs/default/a")
        view = stage.until("default/a", lambda view: view["state"] == "cancelled", "cancelled")
    assert (view["outcome"], view["workers"], view["broken"]) == ("cancelled", 0, False)
    assert (view["p50_at"], view["p90_at"]) == (None, None)


def test_a_job_past_its_deadline_breaks_its_promise_while_it_still_runs(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(1), predictor=Curve(epoch_s=0.001)) as stage:
        stage.submit("a", deadline="2s", widths="1")
        view = stage.until("default/a", lambda view: view["broken"], "broken")
        assert view["verdict"] == "promised"
        stage.world.finished("default/a", at=time.time())
        ended = stage.until("default/a", lambda view: view["state"] == "finished", "finished")
        wait_until(lambda: 'state="finished"' in stage.http.get("/metrics").text, "it counted")
        metrics = stage.http.get("/metrics").text
        cluster = stage.http.get("/v1/cluster").json()
    assert ended["outcome"] == "broken"
    assert "laxity_promises_broken_total 1.0" in metrics
    assert cluster["promises"] == counts(broken=1)


def counts(**fates: int) -> dict[str, int]:
    none = {"kept": 0, "broken": 0, "open": 0, "failed": 0, "cancelled": 0}
    return none | fates | {"given": sum(fates.values())}


def test_promises_add_up_whether_users_fail_cancel_or_wait(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=30.0)) as stage:
        for name in ("kept", "raises", "cancelled", "open"):
            stage.submit(name, deadline="1h", widths="1")
            stage.until(f"default/{name}", lambda view: view["workers"] == 1, "running")
        stage.world.finished("default/kept", at=time.time())
        stage.world.finished("default/raises", failed=True, at=time.time())
        stage.http.delete("/v1/jobs/default/cancelled")
        for name in ("kept", "raises", "cancelled"):
            stage.until(f"default/{name}", lambda view: bool(view["outcome"]), "ended")
        promises = stage.http.get("/v1/cluster").json()["promises"]
    assert promises == counts(kept=1, failed=1, cancelled=1, open=1)


def test_explain_tells_the_chain_and_who_holds_what_a_job_waits_for(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(1), predictor=Curve(epoch_s=30.0)) as stage:
        stage.run("first", deadline="320s", widths="1")
        stage.submit("second", widths="1")
        stage.until("default/second", lambda view: view["verdict"] == "forecast", "told")
        wait_until(
            lambda: bool(stage.desk.views.explain_job("default/second")["held_by"]), "who holds it"
        )
        answer = stage.http.get("/v1/jobs/default/second/explain").json()
    assert answer["held_by"] == ["default/first"]
    assert answer["expected_start_at"] > time.time()
    kinds = [entry["decision"]["kind"] for entry in answer["chain"]]
    assert kinds[0] == "forecasted"
    assert json.dumps(answer)


def test_a_released_job_is_pinned_and_touched_no_more(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(2)) as stage:
        stage.run("a", deadline="1h")
        answer = stage.http.post("/v1/jobs/default/a/release", json={})
        pinned = stage.world.job("default/a")["metadata"]["annotations"]
    assert answer.json() == {"released": "default/a"}
    assert "laxity.dev/pin" in pinned


def test_a_job_that_does_not_run_is_not_released_and_one_not_pinned_not_taken_back(
    tmp_path: Path,
) -> None:
    with staged(tmp_path, MemoryWorld(1)) as stage:
        stage.run("runs", deadline="1h", widths="1")
        stage.submit("waits")
        stage.until("default/waits", lambda view: view["verdict"] != "none", "told")
        waits = stage.http.post("/v1/jobs/default/waits/release", json={})
        not_pinned = stage.http.delete("/v1/jobs/default/runs/release")
        unknown = [
            stage.http.post("/v1/jobs/default/nobody/release", json={}),
            stage.http.delete("/v1/jobs/default/nobody/release"),
        ]
    assert waits.status_code == not_pinned.status_code == 409
    assert "default/waits is queued: only a running job is released" in waits.text
    assert "default/runs is not pinned" in not_pinned.text
    assert [answer.status_code for answer in unknown] == [404, 404]


def test_letting_everything_go_ends_every_job_for_the_service(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(2)) as stage:
        stage.run("a", deadline="1h")
        answer = stage.http.post("/v1/release", json={})
        view = stage.until("default/a", lambda view: view["state"] == "cancelled", "let go")
    assert answer.json() == {"released": 1, "suspended": [], "refused": {}, "nodes_refused": {}}
    assert view["error"].startswith("released")


class Unwilling(MemoryWorld):
    """Lets no job go: neither one that is known nor one that no cycle has seen."""

    def release(self) -> Released:
        return Released(0, (), {"default/a": "no rights", "default/unseen": "no rights"})


def test_a_job_that_could_not_be_let_go_is_managed_as_before(tmp_path: Path) -> None:
    with staged(tmp_path, Unwilling(2)) as stage:
        stage.run("a", deadline="1h")
        answer = stage.http.post("/v1/release", json={})
        stage.world.cancel("default/a")
        view = stage.until("default/a", lambda view: view["state"] == "cancelled", "gone")
    assert answer.json()["refused"].keys() == {"default/a", "default/unseen"}
    assert not view["error"].startswith("released")


def test_metrics_count_what_happened(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(2)) as stage:
        stage.run("a", deadline="1h", widths="1")
        stage.world.finished("default/a")
        stage.until("default/a", lambda view: view["outcome"] == "kept", "kept")
        wait_until(lambda: 'state="finished"' in stage.http.get("/metrics").text, "it counted")
        text = stage.http.get("/metrics").text
    for line in (
        "laxity_promises_total 1.0",
        "laxity_promises_broken_total 0.0",
        'laxity_verdicts_total{reason="fits",verdict="promised"} 1.0',
        'laxity_outcomes_total{outcome="kept"} 1.0',
        'laxity_admission_wait_seconds_count{class="hard"} 1.0',
        'laxity_gpus{state="total"} 2.0',
        'laxity_jobs{class="hard",state="finished"} 1.0',
        "laxity_p90_coverage 1.0",
    ):
        assert line in text
    assert "laxity_decision_seconds_bucket" in text
