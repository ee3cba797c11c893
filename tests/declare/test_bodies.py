"""Prefect's habits work in the training code, although it runs in a worker process of its own."""

import json
import os
import socket
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from laxity import names
from tests.support.training_service import Service
from tests.support.waiting import until

BODIES = Path(__file__).parents[1] / "support/programs/bodies.py"
ROOT = str(Path(__file__).parents[2])


def work(folder: Path, function: str, **environ: str) -> tuple[int, str, Any]:
    """Run a worker of a job to its end: exit code, what it wrote, its result."""
    checkpoints = folder / "checkpoints"
    told = {
        **{key: value for key, value in os.environ.items() if key != "PREFECT_API_URL"},
        names.ENV_JOB: "team/a",
        names.ENV_JOB_UID: "uid-1",
        names.ENV_CHECKPOINTS: str(checkpoints),
        names.ENV_EPOCHS: "2",
        "PYTHONPATH": ROOT,
        **environ,
    }
    done = subprocess.run(
        [sys.executable, "-m", "laxity.worker", f"{BODIES}:{function}"],
        env=told, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        timeout=240,
    )  # fmt: skip
    written = checkpoints / "result.json"
    return done.returncode, done.stdout, json.loads(written.read_text()) if written.exists() else 0


def made_run() -> uuid.UUID:
    """A flow run that follows the job."""
    from prefect import flow, get_client
    from prefect.states import Running

    @flow(name="train with habits")
    def follower() -> None: ...

    with get_client(sync_client=True) as api:
        return api.create_flow_run(follower, state=Running()).id


def test_loggers_prints_and_tasks_of_the_worker_belong_to_the_flow_run(
    prefect_api: str, tmp_path: Path
) -> None:
    from prefect import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId

    from tests.support.flow_runs import lines_of

    run_id = made_run()

    code, said, result = work(
        tmp_path,
        "train_with_habits",
        LAXITY_FLOW_RUN=f"{prefect_api}/flow_runs/{run_id}",
        LAXITY_LOG_PRINTS="true",
        PREFECT_LOGGING_LEVEL="INFO",
    )

    lines = lines_of(run_id)
    with get_client(sync_client=True) as api:
        of_run = FlowRunFilter(id=FlowRunFilterId(any_=[run_id]))
        tasks = api.read_task_runs(flow_run_filter=of_run)
    assert code == 0, said
    assert result == [10, 20, 30, 40]
    assert "training begins" in lines
    assert {"epoch 1 is printed", "epoch 2 is printed", "evaluated 2"} <= {*lines}
    assert [task.state_name for task in tasks] == ["Completed"] * 4


def test_lines_of_a_running_worker_go_to_the_flow_run_that_attached_last(
    prefect_api: str, tmp_path: Path
) -> None:
    from tests.support.flow_runs import lines_of

    first, second = made_run(), made_run()
    with closing(Service()) as service, ThreadPoolExecutor() as pool:
        ended = pool.submit(
            work,
            tmp_path,
            "train_until_followed",
            LAXITY_URL=service.url,
            LAXITY_FLOW_RUN=f"{prefect_api}/flow_runs/{first}",
            LAXITY_PARAMETERS=json.dumps({"by": str(second)}),
        )
        until(
            lambda: "epoch 1" in lines_of(first) or ended.done(),
            limit_s=180,
            what="a line of the first run",
        )
        service.order(flow_run=str(second))
        code, said, result = ended.result()

    assert (code, result) == (0, 2), said
    assert lines_of(first) == ["epoch 1"]
    assert {"evaluated 1", "epoch 2", "evaluated 2"} <= {*lines_of(second)}


@pytest.mark.slow
def test_a_run_whose_api_is_out_of_reach_costs_its_log_lines_and_nothing_else(
    tmp_path: Path,
) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(8)
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/api"

        code, said, result = work(
            tmp_path, "train_and_log", LAXITY_FLOW_RUN=f"{url}/flow_runs/{uuid.uuid4()}"
        )

    assert code == 0, said
    assert result == "done"
    assert "still logged" in said
    assert said.count("no Prefect API in reach") == 1


@pytest.mark.slow
def test_a_job_that_no_flow_run_follows_can_use_the_run_logger(tmp_path: Path) -> None:
    code, said, result = work(tmp_path, "train_and_log")

    assert (code, result) == (0, "done"), said
    assert "still logged" in said
    assert "temporary server" not in said
    assert "Traceback" not in said
