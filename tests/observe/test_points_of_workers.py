"""What workers measured goes to MLflow from any replica, and says nothing of how the job stands."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from laxity.worker.mlflow_tracking import EpochMetrics, Tracker
from laxity_scheduler.notifications.message import Message
from laxity_scheduler.notifications.mlflow_sink import MlflowSink
from laxity_scheduler.plan import Plan
from laxity_scheduler.store.tables import WaitingPointsRow
from tests.support.memory_world import MemoryWorld
from tests.support.services import staged, wait_until

if TYPE_CHECKING:
    from mlflow import MlflowClient

RUNNING: dict[str, Any] = {"uid": "u", "state": "running"}
FINISHED: dict[str, Any] = {"uid": "u", "state": "finished"}
POINT = EpochMetrics(1, 1_000.0, {"loss": 0.5})


def test_points_in_a_message_leave_the_view_that_says_how_the_job_stands() -> None:
    points, stands = Message(RUNNING, (), (POINT,), points_only=True), Message(FINISHED)

    for both in (points.combine(stands), stands.combine(points)):
        assert (both.view, both.points, both.points_only) == (FINISHED, (POINT,), False)
    assert points.combine(points) == Message(RUNNING, (), (POINT, POINT), points_only=True)


@pytest.mark.slow
def test_points_that_come_late_do_not_open_a_run_again(tmp_path: Path, mlflow_uri: str) -> None:
    from mlflow import MlflowClient

    made = list[str]()
    leader = MlflowSink(mlflow_uri, lambda *run: made.append(run[-1]))
    other, client = MlflowSink(mlflow_uri, lambda *_: None), MlflowClient(mlflow_uri)
    with staged(tmp_path, MemoryWorld(1)) as stage:
        view = stage.run("a", deadline="1h", widths="1")
    leader.deliver(Message(view))
    ended = {"state": "finished", "finished_at": view["submitted_at"] + 9.0, "outcome": "kept"}
    leader.deliver(Message(view | ended))

    other.deliver(Message(view | {"run_id": made[0]}, (), (POINT,), points_only=True))

    run = client.get_run(made[0])
    assert run.info.status == "FINISHED"
    assert run.data.metrics["loss"] == 0.5
    assert run.data.tags["laxity.outcome"] == "kept"


@pytest.mark.slow
def test_run_of_a_job_that_never_gets_a_verdict_ends_with_it(
    tmp_path: Path, mlflow_uri: str
) -> None:
    from mlflow import MlflowClient

    made = list[str]()
    sink = MlflowSink(mlflow_uri, lambda *run: made.append(run[-1]))
    with staged(tmp_path, MemoryWorld(1)) as stage:
        view = stage.run("a", deadline="1h", widths="1")
    unjudged = view | {"verdict": "none", "run_id": ""}
    sink.deliver(Message(unjudged, (), (POINT,)))
    ended = {"state": "finished", "finished_at": view["submitted_at"] + 9.0, "outcome": "kept"}
    sink.deliver(Message(unjudged | ended))

    (run_id,) = made
    assert MlflowClient(mlflow_uri).get_run(run_id).info.status == "FINISHED"


@pytest.mark.slow
def test_an_experiment_that_was_deleted_is_named_with_what_brings_it_back(tmp_path: Path) -> None:
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    uri, advice = f"sqlite:///{tmp_path}/mlflow.db", "mlflow experiments restore --experiment-id"
    client, made = MlflowClient(uri), list[str]()
    sink = MlflowSink(uri, lambda *run: made.append(run[-1]))
    with staged(tmp_path, MemoryWorld(1)) as stage:
        view = stage.run("a", deadline="1h", widths="1")
    sink.deliver(Message(view))
    experiment = client.get_run(made[0]).info.experiment_id
    client.delete_experiment(experiment)
    other = Message(view | {"uid": "other", "run_id": ""})

    with pytest.raises(MlflowException):
        sink.deliver(other)
    with pytest.raises(ValueError, match=advice):
        sink.deliver(other)
    with pytest.raises(ValueError, match=advice):
        Tracker(uri, tags={}).run_id()

    client.restore_experiment(experiment)
    sink.deliver(other)
    assert len(made) == 2


class HastyWorld(MemoryWorld):
    """A world whose workers report before the cycle that started them has shown its verdict."""

    report: Callable[[], None] | None = None

    def carry_out(self, plan: Plan) -> None:
        super().carry_out(plan)
        if plan.decisions and self.report is not None:
            assert self.row("default/a").workers == 1
            self.report()
            self.report = None


@pytest.mark.slow
def test_points_of_workers_that_are_faster_than_the_cycle_of_their_verdict_reach_mlflow(
    tmp_path: Path, mlflow_uri: str
) -> None:
    from mlflow import MlflowClient

    client, world = MlflowClient(mlflow_uri), HastyWorld(1)
    verdicts, made = list[str](), list[str]()
    sink = MlflowSink(mlflow_uri, lambda *run: made.append(run[-1]))
    with staged(tmp_path, world, listeners=[sink]) as stage:

        def report() -> None:
            view = stage.desk.views.view_of("default/a")
            verdicts.append(view["verdict"])
            line = {"kind": "finished", "seq": 1, "at": POINT.at, "points": [POINT.to_json()]}
            stage.desk.workers.ingest_reports("default/a", view["uid"], [line])

        world.report = report
        stage.submit("a", deadline="1h", widths="1")
        stage.until("default/a", lambda view: view["verdict"] == "promised", "promised")
        wait_until(
            lambda: not stage.service.store.load_rows(WaitingPointsRow), "all points delivered"
        )
        wait_until(lambda: tags(client, made).get("laxity.verdict") == "promised", "the verdict")

    assert verdicts == ["none"]
    (run_id,) = made
    assert [point.value for point in client.get_metric_history(run_id, "loss")] == [0.5]


def tags(client: "MlflowClient", run_ids: list[str]) -> dict[str, str]:
    return dict(client.get_run(run_ids[0]).data.tags) if run_ids else {}
