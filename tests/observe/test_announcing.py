"""What became of a job is told once per change; who is told can be away without harm."""

import threading
from pathlib import Path
from typing import Any

import pytest

from laxity import names
from laxity.backoff import Backoff
from laxity_scheduler.notifications.chart_points import epoch_points
from laxity_scheduler.notifications.message import Message, events_between
from laxity_scheduler.notifications.mlflow_sink import MlflowSink, final_metrics
from laxity_scheduler.notifications.outbox import NotYetError, Outbox
from laxity_scheduler.notifications.webhook import Webhook
from laxity_scheduler.service.settings import Settings
from tests.support.builders import Curve
from tests.support.http_service import service
from tests.support.memory_world import MemoryWorld
from tests.support.services import PATIENCE_S, staged, wait_until

Json = dict[str, Any]


class Listening:
    """Remembers what it was told; is away as often as it was told to be."""

    name = "listening"

    def __init__(self, *, away: int = 0) -> None:
        self.away = away
        self.words: list[Message] = []

    def deliver(self, word: Message) -> None:
        if self.away:
            self.away -= 1
            raise ConnectionError("nobody is there")
        self.words.append(word)

    @property
    def events(self) -> list[str]:
        return [event for word in self.words for event in word.events]


class Early(Listening):
    """Cannot be told of one job for now."""

    def __init__(self, early: str) -> None:
        super().__init__()
        self.early = early

    def deliver(self, word: Message) -> None:
        if word.view["uid"] == self.early:
            raise NotYetError
        super().deliver(word)


class Choosy(Listening):
    """Raises about one job, always."""

    def __init__(self, refused: str) -> None:
        super().__init__()
        self.refused, self.tries = refused, 0

    def deliver(self, word: Message) -> None:
        if word.view["uid"] == self.refused:
            self.tries += 1
            raise OverflowError("cannot convert float infinity to integer")
        super().deliver(word)


class Deaf:
    """Never comes back from being told."""

    name = "deaf"

    def __init__(self) -> None:
        self.release = threading.Event()

    def deliver(self, word: Message) -> None:
        self.release.wait(30.0)


def test_each_event_of_a_job_is_told_once(tmp_path: Path) -> None:
    listener = Listening()
    with staged(tmp_path, MemoryWorld(1), listeners=[listener]) as stage:
        stage.run("a", deadline="1h", widths="1")
        stage.world.finished("default/a")
        stage.until("default/a", lambda view: view["outcome"] == "kept", "kept")
        wait_until(lambda: "ended_kept" in listener.events, "the end to be told")
    assert listener.events == ["promised", "ended_kept"]


def test_a_listener_who_is_away_is_told_later_everything_and_in_order(tmp_path: Path) -> None:
    listener = Listening(away=2)
    courier = Outbox(listener, backoff=Backoff(first_s=0.01))
    for event in ("promised", "promise_moved", "ended_kept"):
        courier.send(Message({"uid": "u"}, (event,)))
    assert courier.wait_until_empty(at_most_s=PATIENCE_S)
    courier.close()
    assert listener.events == ["promised", "promise_moved", "ended_kept"]


def test_a_word_that_cannot_be_told_yet_lets_the_others_go_first_and_is_told_whole() -> None:
    listener = Early("early")
    courier = Outbox(listener, backoff=Backoff(first_s=3600.0, longest_s=3600.0), retry_s=0.01)
    for uid, event in (("early", "promised"), ("other", "refused"), ("early", "ended_kept")):
        courier.send(Message({"uid": uid}, (event,)))
    wait_until(lambda: listener.events == ["refused"], "the other to be told")
    assert not courier.wait_until_empty(at_most_s=0.0)
    listener.early = ""
    assert courier.wait_until_empty(at_most_s=PATIENCE_S)
    courier.close()
    assert listener.events == ["refused", "promised", "ended_kept"]


def test_a_listener_who_never_answers_holds_up_neither_loop_nor_others(tmp_path: Path) -> None:
    deaf, listener = Deaf(), Listening()
    with staged(tmp_path, MemoryWorld(2), listeners=[deaf, listener]) as stage:
        for name in ("a", "b"):
            stage.submit(name, deadline="1h", widths="1")
            stage.until(f"default/{name}", lambda view: view["workers"] > 0, "running")
        wait_until(lambda: listener.events == ["promised", "promised"], "the other to be told")
        deaf.release.set()


def test_what_was_not_told_before_a_restart_is_told_after_it_and_what_was_is_not(
    tmp_path: Path,
) -> None:
    world, first = MemoryWorld(2), Listening()
    with staged(tmp_path, world, listeners=[first]) as stage:
        stage.run("told", deadline="1h", widths="1")
        wait_until(lambda: first.events == ["promised"], "the promise to be told")
        wait_until(
            lambda: bool((stage.service.view_cache.view("default/told") or {}).get("told")),
            "it noted",
        )
        stage.world.wake()
        wait_until(lambda: not stage.service.view_cache.rows_to_save(), "it saved")
        first.away = 1_000_000
        stage.run("untold", deadline="1h", widths="1")
    second = Listening()
    with staged(tmp_path, world, listeners=[second]):
        wait_until(lambda: bool(second.events), "the rest to be told")
    assert [word.view["id"] for word in second.words if word.events] == ["default/untold"]


def test_a_promise_in_danger_and_then_broken_is_told_once_each() -> None:
    calm = {
        "verdict": "promised", "deadline_at": 100.0, "promised_p90_at": 90.0, "danger": False,
        "broken": False, "outcome": "",
    }  # fmt: skip
    danger, late = calm | {"danger": True}, calm | {"danger": False, "broken": True}
    assert events_between(None, calm) == ("promised",)
    assert events_between(calm, danger) == ("promise_in_danger",)
    assert events_between(danger, danger) == ()
    assert events_between(danger, late) == ("promise_broken",)
    assert events_between(late, late | {"outcome": "broken"}) == ("ended_broken",)
    assert events_between(calm, calm | {"deadline_at": 200.0}) == ("promise_moved",)


def test_a_webhook_gets_each_event_as_json(tmp_path: Path) -> None:
    with (
        service() as hook,
        staged(tmp_path, MemoryWorld(1), listeners=[Webhook(f"{hook.url}/hook")]) as stage,
    ):
        stage.run("a", deadline="1h", widths="1")
        wait_until(lambda: bool(hook.asked), "something posted")
    assert hook.asked[0].body["events"] == ["promised"]
    assert hook.asked[0].body["job"]["id"] == "default/a"


def test_the_error_of_a_prediction_is_that_of_the_run_time() -> None:
    widths = [[110.0, 1], [130.0, 0], [170.0, 2], [200.0, 0]]  # it waited, and was stopped once
    view = {"id": "default/a", "state": "finished", "submitted_at": 100.0, "finished_at": 200.0}
    view |= {"first_p50_at": 225.0, "first_run_s": 60.0, "width_history": widths}
    assert dict(final_metrics(view)) == {
        names.FINAL_ACTUAL: 100.0,
        names.FINAL_PREDICTED: 125.0,
        names.FINAL_RUN_ACTUAL: 50.0,
        names.FINAL_RUN_PREDICTED: 60.0,
        names.FINAL_ERROR: 20.0,
    }
    assert dict(final_metrics(view | {"state": "failed"})) == {}


@pytest.mark.slow
def test_mlflow_shows_promise_and_prediction_by_epoch(tmp_path: Path, mlflow_uri: str) -> None:
    from mlflow import MlflowClient

    world = MemoryWorld(1)

    def on_run(job_id: str, uid: str, experiment: str, run_id: str) -> None:
        world.annotate(job_id, {names.RUN_ID: f"{experiment}/{run_id}"})

    listener = MlflowSink(mlflow_uri, on_run, page_url="http://me")
    with staged(tmp_path, world, listeners=[listener], predictor=Curve(epoch_s=20.0)) as stage:
        stage.run("a", deadline="1h", widths="1", epochs=10)
        wait_until(lambda: bool(world.signal("default/a").run_id), "a run")
        world.send_epochs("default/a", 4, epoch_s=20.0)
        stage.until("default/a", lambda view: view["epochs_done"] == 4, "four epochs on")
        world.finished("default/a")
        view = stage.until("default/a", lambda view: view["outcome"] == "kept", "kept")
        client = MlflowClient(mlflow_uri)
        wait_until(
            lambda: client.get_run(view["run_id"]).info.status == "FINISHED", "the run to end"
        )
    run = client.get_run(view["run_id"])
    steps = [point.step for point in client.get_metric_history(view["run_id"], names.FINISH_P90)]
    tags = run.data.tags  # spelled out, for what people filter by stays from version to version
    assert (tags["laxity.outcome"], tags["laxity.verdict"]) == ("kept", "promised")
    assert (tags["laxity.job"], tags["laxity.model"]) == ("default/a", "mlp")
    assert tags["laxity.reason"].startswith("finished in time, ")
    assert run.data.metrics[names.EPOCH_P50] == 20.0
    assert run.data.metrics[names.NODES_SERIES] == 1.0
    assert run.data.metrics[names.FINISH_DEADLINE] == pytest.approx(3600.0)
    assert {1, 5} <= set(steps)
    assert names.FINAL_ERROR in run.data.metrics
    assert run.info.status == "FINISHED"
    note = run.data.tags["mlflow.note.content"]
    assert "kept: finished" in note
    assert "[laxity's page](http://me/?job=default%2Fa)\n\n![Predicted and measured](get" in note
    assert note.split("\n\n")[1].startswith("Predicted 3m20s of run time, took ")
    assert f" ({run.data.metrics[names.FINAL_ERROR]:.0f} % off) · [Epoch time" in note
    assert "&workflowType=machine_learning)" in note
    assert "epoch_s%2Factual%22%2C%20%22epoch_s%2Fp50%22%2C%20%22epoch_s%2Fp90" in note


@pytest.mark.slow
def test_a_refused_job_makes_no_run_before_it_is_accepted(tmp_path: Path, mlflow_uri: str) -> None:
    from mlflow import MlflowClient

    made: list[str] = []
    listener = MlflowSink(mlflow_uri, lambda job, *_: made.append(job))
    with staged(tmp_path, MemoryWorld(1), predictor=Curve(epoch_s=60.0)) as stage:
        stage.submit("a", deadline="1m", widths="1", epochs=10)
        refused = stage.until("default/a", lambda view: view["state"] == "refused", "refused")
        listener.deliver(Message(refused, ("refused",)))
        listener.deliver(
            Message(refused | {"state": "cancelled", "finished_at": 9e9}, ("cancelled",))
        )
        before = [*made]
        stage.http.post("/v1/jobs/default/a/accept", json={"offer": 1})
        promised = stage.until("default/a", lambda view: view["verdict"] == "promised", "promised")
        listener.deliver(Message(promised, ("promised",)))
    (run,) = MlflowClient(mlflow_uri).search_runs(["1"])
    assert (before, made) == ([], ["default/a"])
    assert (run.info.status, run.data.tags[names.TAG_VERDICT]) == ("RUNNING", "promised")


@pytest.mark.slow
def test_a_run_that_does_not_name_the_job_is_left_alone(tmp_path: Path, mlflow_uri: str) -> None:
    """Somebody wrote another's run on his Job: it gets a run of its own."""
    from mlflow import MlflowClient

    told: list[tuple[str, ...]] = []
    client = MlflowClient(mlflow_uri)
    theirs = client.create_run(client.create_experiment("theirs")).info.run_id
    listener = MlflowSink(mlflow_uri, lambda *run: told.append(run))
    with staged(tmp_path, MemoryWorld(1), predictor=Curve(epoch_s=2.0)) as stage:
        stage.submit("a", deadline="1h", widths="1")
        view = stage.until("default/a", lambda view: view["verdict"] == "promised", "promised")
    for named in (theirs, "no-such-run"):
        listener._runs.clear()
        listener.deliver(Message(view | {"run_id": named}, ()))
    assert not client.get_run(theirs).data.tags.keys() & {names.TAG_VERDICT, names.TAG_JOB}
    assert client.get_run(theirs).info.status == "RUNNING"
    assert [run[0] for run in told] == ["default/a", "default/a"]
    assert told[0][3] == told[1][3] != theirs
    assert client.get_run(told[0][3]).data.tags[names.TAG_UID] == view["uid"]


def test_a_word_that_always_fails_holds_up_no_other_job() -> None:
    listener = Choosy("bad")
    courier = Outbox(listener, backoff=Backoff(60.0))
    for uid in ("bad", *(f"u{number}" for number in range(20))):
        courier.send(Message({"uid": uid}))
    wait_until(lambda: len(listener.words) == 20, "all others")
    assert listener.tries == 1
    courier.close(at_most_s=0.1)


def test_epochs_that_no_chart_can_show_are_not_told() -> None:
    sound = {"kind": "epoch", "epoch": 1, "at": 1.0, "epoch_s": 1.0, "width": 1, "bytes": 0}
    odd: list[Any] = [
        sound | {"epoch": float("inf")},
        sound | {"epoch": 2**64},
        sound | {"at": float("nan")},
        sound | {"at": 1e18},
        sound | {"epoch_s": 10**400},
        sound | {"metrics": [1]},
        sound | {"metrics": {"loss": {}}},
    ]
    assert [point.epoch for point in epoch_points([*odd, sound])] == [1]


@pytest.mark.slow
def test_a_run_that_its_code_ended_goes_on_with_its_job(tmp_path: Path, mlflow_uri: str) -> None:
    from mlflow import MlflowClient

    made = list[str]()
    listener, client = (
        MlflowSink(mlflow_uri, lambda *run: made.append(run[-1])),
        MlflowClient(mlflow_uri),
    )
    with staged(tmp_path, MemoryWorld(1)) as stage:
        view = stage.run("a", deadline="1h", widths="1")
    listener.deliver(Message(view))
    client.set_terminated(made[0], "FINISHED")

    listener.deliver(Message(view))
    going_on = client.get_run(made[0]).info.status
    listener.deliver(Message(view | {"state": "failed", "finished_at": 9e9, "outcome": "failed"}))

    assert going_on == "RUNNING"
    assert client.get_run(made[0]).info.status == "FAILED"


@pytest.mark.slow
def test_a_run_shows_where_its_training_comes_from_and_what_it_was_given(
    tmp_path: Path, mlflow_uri: str
) -> None:
    from mlflow import MlflowClient

    made = list[str]()
    page = "http://127.0.0.1:4200/runs/flow-run/1b4e28ba-2fa1-11d2-883f-0016d3cca427"
    client = MlflowClient(mlflow_uri)
    with staged(tmp_path, MemoryWorld(1)) as stage:
        stage.submit(
            "a", deadline="1h", widths="1", parameters='{"alpha": 0.001, "layers": [8, 8]}',
            followed_by=page,
        )  # fmt: skip
        view = stage.until("default/a", lambda view: view["workers"] > 0, "running")
        listener = MlflowSink(mlflow_uri, lambda *run: made.append(run[-1]), stage.world.job)
        listener.deliver(Message(view))
        client.log_param(made[0], "layers", "(8, 8)")  # by the code, in its own words
        ended = view | {"state": "finished", "outcome": "kept", "width_history": []}
        listener.deliver(Message(ended | {"finished_at": view["deadline_at"] - 90.0}))
    run = client.get_run(made[0])
    note = run.data.tags["mlflow.note.content"]
    assert run.data.params == {"alpha": "0.001", "layers": "(8, 8)"}
    assert run.data.tags["mlflow.source.name"] == "train:main"
    assert run.data.tags["mlflow.user"] == "default"
    assert run.data.tags[names.TAG_FLOW_RUN] == page
    assert run.data.tags[names.TAG_DEADLINE].endswith("Z")
    assert "kept: finished 1m30s before the deadline" in note.partition("\n\n[Epoch time")[0]
    assert f"[Prefect flow run]({page})" in note


def test_a_tracking_server_that_does_not_answer_is_told_with_the_job(tmp_path: Path) -> None:
    listener = MlflowSink("http://127.0.0.1:9", lambda *_: None)
    with staged(tmp_path, MemoryWorld(1), listeners=[listener]) as stage:
        stage.run("a", deadline="1h", widths="1")
        wait_until(lambda: bool(stage.http.get("/v1/jobs/default/a").json()["untracked"]), "told")
        stage.world.finished("default/a")
        ended = stage.until("default/a", lambda view: view["outcome"] == "kept", "kept")
        shown = stage.http.get("/v1/jobs/default/a").json()
    assert ended["state"] == "finished"
    assert "does not answer" in shown["untracked"], "it has no run, and is still owed one"


def test_the_page_of_a_run_has_no_password() -> None:
    settings = Settings(tracking_uri="https://user:secret@mlflow.example/base/")
    page = "https://mlflow.example/base/#/experiments/7/runs/abc?workflowType=machine_learning"
    assert settings.run_url("7", "abc") == page
    assert Settings().run_url("7", "abc") == ""
