"""What raises beside the decision (views, reports, telling, user code) costs that Job alone."""

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from laxity.api.job_view import job_view
from laxity_profiler.history.history import HistoryError
from laxity_scheduler.service import expected_times
from laxity_scheduler.service.exported.metrics import Metrics
from laxity_scheduler.service.feedback import Feedback
from laxity_scheduler.service.transition_times import TransitionWatcher
from laxity_scheduler.service.views import live_view as views
from laxity_scheduler.service.views import promise_outcome, view_cache
from laxity_scheduler.store.audit_rows import AuditRows
from tests.support.builders import Curve
from tests.support.memory_world import MemoryWorld
from tests.support.services import looked, staged, submit_together, wait_until

Json = dict[str, Any]


def test_an_expected_end_that_cannot_be_told_costs_that_job_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finishes = expected_times.predict_ends

    def failing(state: Any, predictor: Any, jobs: Any) -> Any:
        if any(job.id == "default/bad" for job in jobs):
            raise ValueError("year 17970 is out of range")
        return finishes(state, predictor, jobs)

    monkeypatch.setattr(expected_times, "predict_ends", failing)
    with staged(tmp_path, MemoryWorld(2)) as stage:
        submit_together(stage, "bad", "a")
        good = stage.until("default/a", lambda view: view["p90_at"] and view["workers"], "expected")
        stage.until("default/bad", lambda view: view["workers"] == 1, "running")
        failure = stage.service.failure
    assert good["p90_at"] > good["submitted_at"]
    assert failure == ""


def test_a_view_that_cannot_be_made_shows_the_error_and_spoils_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view_of = views.view_of

    def failing(manifest: Any, *args: Any, **more: Any) -> Json:
        if manifest["metadata"]["name"] == "bad" and "spec" in manifest:
            raise KeyError("conditions")
        return view_of(manifest, *args, **more)

    with staged(tmp_path, MemoryWorld(2)) as stage:
        submit_together(stage, "bad", "a")
        stage.until("default/bad", lambda view: view["workers"] == 1, "running")
        with monkeypatch.context() as patch:
            patch.setattr(view_cache, "view_of", failing)
            stage.service.view_cache.mark_stale(stage.world.job("default/bad")["metadata"]["uid"])
            stage.world.wake()
            stage.submit("b", deadline="1h", widths="1")
            shown = stage.until("default/bad", lambda view: bool(view["error"]), "in error")
            stage.until("default/b", lambda view: view["verdict"] != "none", "answered")
            listed = stage.http.get("/v1/jobs").json()["jobs"]
        stage.world.wake()
        mended = stage.until("default/bad", lambda view: view["workers"] == 1, "shown again")
    assert "laxity cannot show all of this Job: KeyError: 'conditions'" in shown["error"]
    assert {view["id"] for view in listed} == {"default/a", "default/b", "default/bad"}
    assert mended["verdict"] == "promised"


def test_a_view_that_cannot_be_written_spoils_neither_the_list_nor_the_store(
    tmp_path: Path,
) -> None:
    """A World, or a store of an earlier laxity, may hold what no intake has checked."""
    with staged(tmp_path, world := MemoryWorld(2)) as stage:
        submit_together(stage, "bad", "a")
        stage.until("default/bad", lambda view: view["workers"] == 1, "running")
        report_of = stage.service.report_of
        uid = stage.world.job("default/bad")["metadata"]["uid"]

        def poisoned(asked: str) -> Any:
            from dataclasses import replace

            report = report_of(asked)
            return replace(report, result={"seed": 2**64}) if asked == uid else report

        stage.service._publisher._report_of = poisoned
        world.finished("default/bad")
        ended = stage.until("default/bad", lambda view: view["state"] == "finished", "finished")
        listed = stage.http.get("/v1/jobs")
        stage.submit("b", deadline="1h", widths="1")
        stage.until("default/b", lambda view: view["workers"] == 1, "running")
        wait_until(lambda: not stage.service.view_cache.rows_to_save(), "all views saved")
        saved = {row.uid: json.loads(row.view) for row in stage.service.store.load_jobs()}
    assert listed.status_code == 200
    assert (ended["result"], ended["outcome"]) == (None, "kept")
    assert "64-bit" in ended["error"]
    assert saved[uid]["state"] == "finished"


def test_reports_that_cannot_be_read_are_no_fault_of_any_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_args: Any) -> None:
        raise HistoryError("the history is away")

    with staged(tmp_path, MemoryWorld(2)) as stage:
        submit_together(stage, "a")
        stage.until("default/a", lambda view: view["workers"] == 1, "running")
        with monkeypatch.context() as patch:
            patch.setattr(stage.service._publisher, "_report_of", away)
            stage.world.send_epochs("default/a", 3)
            wait_until(lambda: "history is away" in stage.service.failure, "a history away")
            meanwhile = stage.http.get("/v1/jobs/default/a").json()
        stage.world.wake()
        later = stage.until("default/a", lambda view: view["epochs_done"] == 3, "three epochs on")
    assert meanwhile["error"] == later["error"] == ""


def test_news_of_a_look_that_failed_is_told_after_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    count = Metrics.count_changes

    def counting(self: Metrics, news: Any) -> None:
        news = list(news)
        heard.extend(
            f"{one.after['id']} {one.after['verdict']}"
            for one in news
            if not one.before or one.before["verdict"] != one.after["verdict"]
        )
        count(self, news)

    def away(_uid: str) -> None:
        raise HistoryError("the history is away")

    monkeypatch.setattr(Metrics, "count_changes", counting)
    with staged(tmp_path, MemoryWorld(4)) as stage:
        report_of, bad = stage.service.report_of, ""

        def reading(uid: str) -> Any:
            return away(uid) if uid == bad else report_of(uid)

        stage.service._publisher._report_of = reading
        with stage.world._lock:
            submit_together(stage, "a", "b")
            bad = stage.world.job("default/b")["metadata"]["uid"]
        wait_until(lambda: "history is away" in stage.service.failure, "a history away")
        meanwhile = [line for line in heard if "promised" in line]
        bad = ""
        stage.world.wake()
        stage.until("default/b", lambda view: view["verdict"] == "promised", "promised")
        wait_until(lambda: "default/a promised" in heard, "news of the first job")
    assert meanwhile == []
    assert heard.count("default/a promised") == 1
    assert heard.count("default/b promised") == 1


@pytest.mark.parametrize(
    ("stage_name", "owner", "method", "job_of"),
    [
        ("lesson", Feedback, "_track_steady_run", lambda job, *_: job.id),
        ("observed stop", TransitionWatcher, "_transitions_of", lambda job, *_: job.id),
        ("explanation", AuditRows, "_is_new", lambda decision, *_: decision.job),
    ],
)
def test_what_raises_about_one_job_is_counted_and_logged_once_and_others_are_served(
    *,
    stage_name: str,
    owner: type,
    method: str,
    job_of: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    work, served = getattr(owner, method), list[str]()

    def failing(self: Any, *arguments: Any) -> Any:
        if job_of(*arguments) == "default/bad":
            raise ValueError("math range error")
        served.append(job_of(*arguments))
        return work(self, *arguments)

    monkeypatch.setattr(owner, method, failing)
    with staged(tmp_path, MemoryWorld(2)) as stage:
        submit_together(stage, "bad", "a")
        stage.until("default/bad", lambda view: view["workers"] == 1, "running")
        stage.world.send_epochs("default/bad", 1)
        stage.until("default/bad", lambda view: view["epochs_done"] == 1, "one epoch on")
        wait_until(lambda: "default/a" in served, "the other job served")
        counted = f'laxity_job_errors_total{{stage="{stage_name}"}}'
        wait_until(lambda: counted in stage.http.get("/metrics").text, "the error counted")
        failure = stage.service.failure
    logged = [record for record in caplog.records if "math range error" in record.getMessage()]
    assert [record.getMessage().partition(":")[0] for record in logged] == [
        f"{stage_name} of default/bad"
    ]
    assert failure == ""


@pytest.mark.parametrize("part", ["lessons", "metrics", "telling"])
def test_a_part_that_raises_costs_nobody_his_start(
    tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(*_args: Any, **_more: Any) -> None:
        raise ZeroDivisionError("float division by zero")

    with staged(tmp_path, MemoryWorld(1)) as stage:
        owner, name = {
            "lessons": (stage.service._publisher._feedback, "record_transitions"),
            "metrics": (stage.service.metrics, "set_gauges"),
            "telling": (stage.service.notifications, "dispatch"),
        }[part]
        monkeypatch.setattr(owner, name, failing)
        with caplog.at_level(logging.ERROR):
            stage.submit("a", deadline="1h", widths="1")
            stage.until("default/a", lambda view: view["workers"] == 1, "running")
            wait_until(lambda: not stage.service.view_cache.rows_to_save(), "all views saved")
    assert "ZeroDivisionError" in caplog.text


def test_a_probe_whose_asker_cannot_be_asked_again_now_is_asked_in_the_next_cycle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor = Curve(epoch_s=1.0, unknown=frozenset({"new"}))
    with staged(tmp_path, MemoryWorld(2), predictor=predictor) as stage:
        stage.submit("a", deadline="1h", widths="1", model="new")
        stage.until("default/a", lambda view: view["state"] == "refused", "refused")
        stage.http.post("/v1/jobs/default/a/accept", json={"offer": 1})
        stage.until("default/a-probe", lambda view: view["workers"] == 1, "running")
        annotate, tries = stage.world.annotate, []

        def once_away(job_id: str, changes: Any) -> Any:
            tries.append(job_id)
            if len(tries) == 1:
                raise ConnectionError("the API server is away")
            return annotate(job_id, changes)

        monkeypatch.setattr(stage.world, "annotate", once_away)
        stage.learning.in_use = Curve(epoch_s=1.0, version="known")
        stage.world.finished("default/a-probe")
        wait_until(lambda: len(tries) == 1, "the first try")
        stage.world.wake()
        stage.until("default/a", lambda view: view["verdict"] == "promised", "promised")
    assert tries == ["default/a", "default/a"]


def test_user_code_that_raises_breaks_no_promise(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(1), predictor=Curve(epoch_s=0.001)) as stage:
        view = stage.submit("a", deadline="2s", widths="1", epochs=1)
        stage.until("default/a", lambda view: view["workers"] == 1, "running")
        stage.world.finished("default/a", failed=True, at=view["submitted_at"] + 1.0)
        stage.until("default/a", lambda view: view["state"] == "failed", "failed")
        wait_until(lambda: time.time() > view["submitted_at"] + 2.1, "the deadline")
        seen = stage.world.observed
        wait_until(lambda: looked(stage.world) > seen + 1, "two looks")
        after = stage.http.get("/v1/jobs/default/a").json()
        promises = stage.http.get("/v1/cluster").json()["promises"]
        metrics = stage.http.get("/metrics").text
    assert (after["outcome"], after["broken"]) == ("failed", False)
    assert (promises["given"], promises["failed"], promises["broken"]) == (1, 1, 0)
    assert "laxity_promises_broken_total 0.0" in metrics


@pytest.mark.parametrize(
    ("state", "finished_at", "kept", "broken"),
    [
        pytest.param("finished", 9.0, True, False, id="in time"),
        pytest.param("finished", 11.0, False, True, id="late"),
        pytest.param("failed", 9.0, None, False, id="its code raised in time"),
        pytest.param("failed", 11.0, None, False, id="its code raised late"),
        pytest.param("cancelled", 9.0, None, False, id="cancelled in time"),
        pytest.param("cancelled", 11.0, None, False, id="cancelled late"),
    ],
)
def test_only_a_finished_run_keeps_or_breaks_its_promise(
    state: str, finished_at: float, kept: bool | None, *, broken: bool
) -> None:
    answer = {
        "id": "d/a", "uid": "u", "state": state, "verdict": "promised", "deadline_at": 10.0,
        "finished_at": finished_at,
    }  # fmt: skip
    view = job_view(answer)
    assert (view.kept, view.broken) == (kept, broken)
    assert promise_outcome.is_promise_broken(answer, 12.0) is broken


def test_a_stored_report_that_no_writer_takes_is_read_without_its_result(tmp_path: Path) -> None:
    """A store of an earlier laxity, whose intake checked less."""
    import sqlite3

    with staged(tmp_path, world := MemoryWorld(2)) as stage:
        submit_together(stage, "bad", "a")
        stage.until("default/bad", lambda view: view["workers"] == 1, "running")
        line = {"seq": 1, "kind": "finished", "at": time.time(), "result": 1}
        uid = world.job("default/bad")["metadata"]["uid"]
        stage.history.ingest(uid, "default/bad", _workload(), [line])
    with sqlite3.connect(tmp_path / "laxity.db") as database:
        (said,) = database.execute(
            "SELECT said FROM observed_runs WHERE uid = ?", (uid,)
        ).fetchone()
        poisoned = json.dumps(json.loads(said) | {"result": {"seed": 2**64, "t": "\ud800"}})
        database.execute("UPDATE observed_runs SET said = ? WHERE uid = ?", (poisoned, uid))
    database.close()
    world.finished("default/bad")
    with staged(tmp_path, world) as again:
        ended = again.until("default/bad", lambda view: view["state"] == "finished", "finished")
        listed = again.http.get("/v1/jobs")
        again.submit("b", deadline="1h", widths="1")
        again.until("default/b", lambda view: view["workers"] == 1, "running")
    assert (ended["result"], ended["outcome"]) == (None, "kept")
    assert "result is no JSON that can be kept" in ended["error"]
    assert listed.status_code == 200


def _workload() -> Any:
    from laxity_profiler.estimate import Workload

    return Workload("mlp", 10)
