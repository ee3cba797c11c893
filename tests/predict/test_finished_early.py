"""A run that its own code ends early is an end of its own, and no error of a prediction."""

from pathlib import Path
from typing import Any

import pytest

from laxity.api.job_view import job_view
from laxity.api.prediction import comparison_text
from laxity.api.status_text import ending_text, progress_text, standing_text, state_words
from laxity_profiler.history.history_database import open_transaction, predictions_of
from laxity_profiler.history.report_fold import ReportState
from laxity_profiler.learning.learner import Learner
from laxity_scheduler.notifications.mlflow_sink import final_metrics, tags_of
from laxity_scheduler.service.exported.metrics import Metrics
from laxity_scheduler.service.feedback import Feedback
from laxity_scheduler.service.views.live_view import view_of
from laxity_scheduler.service.views.view_cache import ViewChange
from tests.support.builders import MINUTE_EPOCHS, cluster, job
from tests.support.manifests import job as manifest
from tests.support.runs import START_AT, epoch_line, history_in, line

EARLY = "finished early, 6 of at most 40 epochs"
COMPLETE = {"conditions": [{"type": "Complete", "status": "True"}]}


def ended(**changes: Any) -> dict[str, Any]:
    """The view of a run of 40 epochs, of which its code took 6 in 60 s; 400 s were predicted."""
    made = manifest(status=COMPLETE)
    return view_of(made, None, report=report(6), before=None, now=60.0) | {
        "epochs": 40, "epochs_done": 6, "submitted_at": 0.0, "finished_at": 60.0,
        "width_history": [[0.0, 1], [60.0, 0]], "first_run_s": 400.0, "first_p50_at": 400.0,
        "first_p90_at": 500.0, "finished_early": True, "state": "finished", **changes,
    }  # fmt: skip


def report(trained: int | None) -> Any:
    said = ReportState()
    lines = [epoch_line(n, n, epoch_s=1.0, width=1, at=START_AT + n) for n in range(1, 7)]
    more = {} if trained is None else {"epochs_done": trained}
    said.fold(
        [*lines, line(7, "finished", at=START_AT + 8, **more)], epochs=40, received_at=START_AT + 9
    )
    return said.report()


@pytest.mark.parametrize(
    ("trained", "early"),
    [
        pytest.param(6, True, id="with epochs left"),
        pytest.param(40, False, id="after the last one"),
        pytest.param(None, False, id="a worker that does not say"),
    ],
)
def test_only_a_worker_says_that_it_finished_early(trained: int | None, *, early: bool) -> None:
    made = manifest(status=COMPLETE)
    made["metadata"]["annotations"]["laxity.dev/epochs"] = "40"

    view = view_of(made, None, report=report(trained), before=None, now=60.0)

    assert (view["state"], view["finished_early"]) == ("finished", early)


@pytest.mark.parametrize(
    ("due", "state", "end"),
    [
        (None, EARLY, EARLY),
        (90.0, f"kept, 30s early: {EARLY}", f"{EARLY}, in time, 30s before its deadline"),
        (50.0, f"late by 10s: {EARLY}", f"{EARLY}, late by 10s"),
    ],
)
def test_words_say_how_many_of_at_most_how_many(due: float | None, state: str, end: str) -> None:
    view = ended(deadline_at=due)
    seen = job_view(view)

    assert (state_words(seen), ending_text(seen), progress_text(seen)) == (state, end, EARLY)
    assert EARLY in standing_text(seen)
    assert tags_of(view | {"broken": False})["laxity.reason"] == end


def test_no_percentage_and_no_error_is_told() -> None:
    view = ended()

    compared = comparison_text(job_view(view))

    assert compared == "predicted 6m40s of run time, took 1m00s for 6 of at most 40 epochs"
    assert dict(final_metrics(view)) == {"final/actual_s": 60.0}


@pytest.mark.parametrize(("early", "counted"), [(True, 0.0), (False, 1.0)])
def test_coverage_and_ratio_leave_it_out(*, early: bool, counted: float) -> None:
    metrics, view = Metrics(), ended(finished_early=early)

    metrics.count_changes([ViewChange(None, view)])
    metrics.set_gauges(cluster(gpus=1, jobs=[]), [view])

    text = metrics.exposition().decode()
    assert f"laxity_finish_ratio_count {counted}" in text
    assert ("laxity_p90_coverage NaN" in text) is early


@pytest.mark.parametrize(("early", "judged"), [(True, 0), (False, 1)])
def test_its_predictions_are_not_judged(tmp_path: Path, *, early: bool, judged: int) -> None:
    history = history_in(tmp_path)
    feedback = Feedback(history, Learner(history))
    row = job("a", done=0, running=1, epoch_started_at=1.0, since=1.0)
    feedback.record_transitions(cluster(gpus=1, jobs=[row], now=1.0), MINUTE_EPOCHS, {row.id: "u"})

    end = {"uid": "u", "state": "finished", "finished_at": 60.0, "finished_early": early}
    feedback.record_finishes([ViewChange(None, end)], now=60.0)

    with open_transaction(history.engine) as connection:
        assert len(list(predictions_of(connection, "u"))) == judged
    history.engine.dispose()
