"""The MLflow runs of a group's jobs are nested in one run, which is open while one of them is."""

from pathlib import Path
from typing import Any

import pytest

from laxity_scheduler.notifications.message import Message
from laxity_scheduler.notifications.mlflow_sink import MlflowSink
from tests.support.memory_world import MemoryWorld
from tests.support.services import staged

pytestmark = pytest.mark.slow


def test_runs_of_a_group_are_nested_in_one_run(tmp_path: Path, mlflow_uri: str) -> None:
    from mlflow import MlflowClient

    client, runs = MlflowClient(mlflow_uri), dict[str, str]()
    views = dict[str, dict[str, Any]]()
    with staged(tmp_path, MemoryWorld(3)) as stage:
        for name, group in (("a", "sweep-1"), ("b", "sweep-1"), ("c", None)):
            where = {"group": group, "step": "trial-0"} if group else {}
            stage.submit(name, deadline="1h", widths="1", **where)
            views[name] = stage.until(f"default/{name}", lambda view: view["workers"] > 0, "runs")

    def deliver(sink: MlflowSink, name: str, **changes: Any) -> None:
        sink.deliver(Message(views[name] | changes))

    def sink() -> MlflowSink:
        return MlflowSink(mlflow_uri, lambda job, _uid, _experiment, run: runs.update({job: run}))

    first, ended = sink(), {"state": "finished", "finished_at": 9_000.0, "outcome": "kept"}
    for name in views:
        deliver(first, name)
    tags = {job: client.get_run(run).data.tags for job, run in runs.items()}
    parent = tags["default/a"]["mlflow.parentRunId"]
    statuses = [client.get_run(parent).info.status]
    for name in ("a", "b"):
        deliver(first, name, **ended)
        statuses.append(client.get_run(parent).info.status)
    deliver(sink(), "a")  # a service that was started again

    assert tags["default/b"]["mlflow.parentRunId"] == parent
    assert "mlflow.parentRunId" not in tags["default/c"]
    assert client.get_run(parent).info.run_name == "sweep-1"
    assert statuses == ["RUNNING", "RUNNING", "FINISHED"]
    assert client.get_run(parent).info.status == "RUNNING"
    assert client.get_run(runs["default/a"]).data.tags["mlflow.parentRunId"] == parent


def test_the_run_of_a_workflow_has_its_verdict_and_fails_with_a_step(
    tmp_path: Path, mlflow_uri: str
) -> None:
    from mlflow import MlflowClient

    client, runs = MlflowClient(mlflow_uri), list[str]()
    with staged(tmp_path, MemoryWorld(2)) as stage:
        stage.submit("a", deadline="1h", widths="1", group="release", step="pretrain")
        view = stage.until("default/a", lambda view: view["workers"] > 0, "runs")

    def deliver(uid: str, name: str, **changes: Any) -> str:
        sink = MlflowSink(mlflow_uri, lambda _job, _uid, _experiment, run: runs.append(run))
        attempt = view | {"uid": uid, "id": f"default/{name}", "verdict": "promised", "run_id": ""}
        sink.deliver(Message(attempt))
        sink.deliver(Message(attempt | changes))
        parent = client.get_run(client.get_run(runs[-1]).data.tags["mlflow.parentRunId"])
        assert parent.data.tags["laxity.verdict"] == "promised"
        return str(parent.info.status)

    ends = [
        deliver(f"attempt-{number}", name, state=state, finished_at=9_000.0 + number)
        for number, (name, state) in enumerate(
            [
                ("b", "finished"),
                ("a", "failed"),
                ("b", "finished"),
                ("a", "finished"),
                ("b", "failed"),
            ]
        )
    ]
    assert ends == ["FINISHED", "FAILED", "FAILED", "FINISHED", "FAILED"]
