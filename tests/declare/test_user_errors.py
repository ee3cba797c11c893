"""What a user declares or calls wrongly is one sentence: in Prefect, in a notebook, in a script."""

import contextlib
import io
import logging
import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from laxity import DeadlineRefused, QoSError, TrainingFailed, deadline_flow
from laxity.api.client import JobView, ServiceError
from laxity.api.status_text import TrainingCancelled
from laxity.worker.training import Training
from tests.support.flow_runs import latest_run, lines_of
from tests.support.job_service import StandIn
from tests.support.processes import run_command

REFUSED = {"state": "refused", "verdict": "refused", "reason_code": "r", "reason": "too late"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(
            {"deadline": "20"}, "deadline: 20 of what? Write the unit: 20s, 20m or 20h", id="deadline"
        ),
        pytest.param(
            {"name": ["x"]}, "parameters: name = ['x']: input should be a valid string", id="type"
        ),
    ],
)  # fmt: skip
def test_a_wrong_call_fails_its_run_in_one_sentence(
    trainings: ModuleType,
    service: StandIn,
    arguments: dict[str, Any],
    sentence: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(QoSError) as error, caplog.at_level(logging.INFO, logger="prefect"):
        trainings.train_digits(**arguments)

    run = latest_run()
    assert str(error.value) == sentence
    assert run.state.message.endswith(sentence)
    assert [line for line in lines_of(run.id) if "Traceback" in line] == []
    assert [record for record in caplog.records if record.exc_info] == []
    assert service.manifests == []


def test_a_wrong_call_is_not_tried_again(trainings: ModuleType, service: StandIn) -> None:
    with pytest.raises(QoSError, match="of what"):
        trainings.train_again(deadline="20")

    assert latest_run().run_count == 1


def test_an_unknown_parameter_makes_no_run(trainings: ModuleType, service: StandIn) -> None:
    runs_before = _count_runs()

    with pytest.raises(QoSError, match=r"train-digits\(hidden: int .*unexpected keyword .*'hiden'"):
        trainings.train_digits(hiden=3)

    assert service.manifests == []
    assert _count_runs() == runs_before


def _count_runs() -> int:
    from prefect import get_client

    with get_client(sync_client=True) as api:
        return len(api.read_flow_runs())


def test_an_unknown_option_names_the_nearest(prefect_api: str) -> None:
    def train(training: Training) -> None: ...

    with pytest.raises(QoSError, match=r"deadlin: no such option .* nearest is deadline"):
        deadline_flow(deadlin="2h")(train)


JOB = JobView("default/a", reason_code="capacity", reason="no room")


@pytest.mark.parametrize(
    "error",
    [
        QoSError("deadline", "20 of what?"),
        DeadlineRefused(JOB),
        TrainingFailed(JOB, "exit code 1"),
        TrainingCancelled(JOB),
        ServiceError("bad", "no such job"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_notebook_shows_the_sentence_alone(error: Exception) -> None:
    interactive: Any = import_module("IPython.core.interactiveshell").InteractiveShell
    shell, output = interactive(), io.StringIO()
    shell.push({"error": error})
    with contextlib.redirect_stdout(output):
        shell.run_cell("def call():\n    raise error\ncall()")
    interactive.clear_instance()

    assert output.getvalue().strip() == f"{type(error).__name__}: {error}"


def test_a_script_shows_its_own_line_and_no_frames_of_prefect(
    prefect_api: str, service: StandIn, tmp_path: Path
) -> None:
    service.will(REFUSED)
    script = tmp_path / "nightly.py"
    script.write_text("from tests.support.programs.flows import train_digits\ntrain_digits()\n")
    root = Path(__file__).parents[2]
    environ = os.environ | {"PREFECT_API_URL": prefect_api, "PYTHONPATH": str(root)}

    ended = run_command(sys.executable, str(script), env=environ)

    frames = [line for line in ended.stderr.splitlines() if line.startswith("  File ")]
    assert ended.returncode == 1
    assert "deadline refused [r]: too late" in ended.stderr
    assert len(frames) == 2, ended.stderr
    assert not any("/prefect/" in line for line in frames)
