"""A checkpoint that cannot be written: the training goes on, and what a stop keeps is said."""

import io
from typing import Any

import pytest
from rich.console import Console

from laxity.api.job_view import job_view
from laxity.cli.render.job_panel import job_panel
from laxity_profiler.history.report_fold import ReportState
from tests.support.job_workers import JobWorkers
from tests.support.runs import START_AT, epoch_line, line
from tests.support.training_service import Service

FULL = {"saved_epoch": 3, "save_error": "No space left on device"}


def run_full(job_workers: JobWorkers, service: Service, *, full_from: int, until: int) -> Any:
    """A worker on a disk that is full from this epoch on, told to stop after another one."""
    parameters = f'{{"gates": "{job_workers.gates}", "full_from": {full_from}}}'
    job_workers.open_gate(until - 1)
    worker = job_workers.start("trains_on_a_full_disk", environ={"LAXITY_PARAMETERS": parameters})
    job_workers.until_noted("began", epoch=until)
    service.tell(stop=True)
    job_workers.open_gate(until)
    return worker


@pytest.mark.slow
def test_a_stop_keeps_what_was_saved(job_workers: JobWorkers, service: Service) -> None:
    worker = run_full(job_workers, service, full_from=2, until=3)

    service.until_reported("parked", epoch=1)
    worker.terminate()

    assert worker.wait(60) == 143
    assert "the next start begins after epoch 1" in job_workers.log()


@pytest.mark.slow
def test_a_stop_with_nothing_saved_fails(job_workers: JobWorkers, service: Service) -> None:
    worker = run_full(job_workers, service, full_from=1, until=2)

    failed = service.until_reported("failed")

    assert worker.wait(60) == 1
    assert "checkpoint of epoch 2 could not be written" in failed["error"]


@pytest.mark.slow
def test_a_sigterm_with_nothing_saved_fails(job_workers: JobWorkers, service: Service) -> None:
    parameters = f'{{"gates": "{job_workers.gates}", "full_from": 1}}'
    job_workers.open_gate(1)
    worker = job_workers.start("trains_on_a_full_disk", environ={"LAXITY_PARAMETERS": parameters})
    job_workers.until_noted("began", epoch=2)

    worker.terminate()

    assert worker.wait(60) == 1
    assert "checkpoint of epoch 1 could not be written" in service.of("failed")[0]["error"]


@pytest.mark.parametrize(
    ("later", "saved_epoch"),
    [
        pytest.param([], 3, id="still full"),
        pytest.param(
            [epoch_line(3, 5, epoch_s=1.0, width=1, at=START_AT + 2)], None, id="saved again"
        ),
        pytest.param(
            [line(3, "resumed", epoch=3, load_s=1.0, at=START_AT + 2)], None, id="begun again"
        ),
    ],
)
def test_the_last_line_says_what_is_saved(
    later: list[dict[str, Any]], saved_epoch: int | None
) -> None:
    said = ReportState()
    lines = [line(1, "formed", width=1, epoch=0, at=START_AT)]
    lines.append(epoch_line(2, 4, epoch_s=1.0, width=1, at=START_AT + 1) | FULL)

    said.fold([*lines, *later], epochs=9, received_at=START_AT + 9)

    assert ReportState.from_json(said.to_json()).report().saved_epoch == saved_epoch


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "not saved since epoch 3: No space left on device"),
        ({"saved_epoch": 0}, "not saved yet: No space left on device"),
    ],
)
def test_show_says_since_when_nothing_is_saved(more: dict[str, Any], words: str) -> None:
    shown = io.StringIO()
    view = {"id": "default/a", "state": "running", "epochs": 9, **FULL, **more}

    Console(file=shown, width=120).print(job_panel(job_view(view), now=0.0))

    assert words in shown.getvalue()
