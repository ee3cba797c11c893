"""Who is predicted by the runs of another training of that name is warned."""

import json
from pathlib import Path
from typing import Any

import pytest

from laxity import names
from laxity.api.job_view import JobView
from laxity.api.prediction import history_doubt
from tests.support.command_line import CommandLine
from tests.support.http_service import Service, job
from tests.support.job_answers import answer_job

REFUSED_ALONE = {
    "state": "refused", "reason_code": "deadline_before_fastest_finish", "first_run_s": None,
    "submitted_at": 100.0, "p90_at": 900.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "estimate_s", "doubted"),
    [
        pytest.param({"first_run_s": 20.0}, 10.0, True, id="far shorter than declared"),
        pytest.param({"first_run_s": 60.0}, 10.0, False, id="somewhat shorter"),
        pytest.param({"first_run_s": 250.0}, 10.0, False, id="longer, with a start"),
        pytest.param({"first_run_s": 300.0}, 10.0, True, id="far longer"),
        pytest.param({"first_run_s": 20.0}, None, False, id="nothing declared"),
        pytest.param({"first_run_s": 20.0, "widths": (1, 4)}, 10.0, False, id="on four workers"),
        pytest.param({"first_run_s": 20.0, "attempt": 2}, 10.0, False, id="the rest of a run"),
        pytest.param({"first_run_s": 20.0, "epochs_done": 3}, 10.0, False, id="it has begun"),
        pytest.param({"first_run_s": None}, 10.0, False, id="no prediction"),
        pytest.param(REFUSED_ALONE, 10.0, True, id="refused because of it"),
        pytest.param(REFUSED_ALONE, 60.0, False, id="refused as declared"),
    ],
)
def test_a_history_that_contradicts_the_declared_epoch_is_doubted(
    changes: dict[str, Any], estimate_s: float | None, *, doubted: bool
) -> None:
    fields: dict[str, Any] = {"id": "default/a", "model": "train", "epochs": 10, "widths": (1,)}
    view = JobView(**(fields | changes))

    assert bool(history_doubt(view, estimate_s)) is doubted


def test_a_doubt_says_that_the_runs_before_ended_early() -> None:
    early = "all 3 runs ended early, half of them by epoch 6 of 40: P90 counts all 40"
    view = JobView(id="default/a", model="es", epochs=40, first_run_s=6.5, prediction_note=early)

    doubt = history_doubt(view, 1.0)

    assert f"says 6.5s for a run ({early}); " in doubt
    assert "a start and 40 epochs" not in doubt


def test_submit_tells_of_a_history_that_may_be_anothers(
    answering: Service, tmp_path: Path, laxity: CommandLine
) -> None:
    metadata = {"name": "train", "annotations": {names.EPOCH_ESTIMATE: "6s"}}
    manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
    (tmp_path / "job.json").write_text(json.dumps(manifest))
    answer_job(answering, job(epochs_done=0, first_run_s=15.0, widths=[1], model="train"))

    assert laxity("submit", str(tmp_path / "job.json")) == 0

    told = laxity.read_errors()
    assert "the history of model 'train' says 15s for a run;" in told
    assert "epoch_estimate says 1m00s for 10 epochs on one worker" in told
    assert "--model" in told
