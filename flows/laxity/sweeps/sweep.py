"""`laxity.sweep`: many trials of one training function under one deadline."""

import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from laxity import names
from laxity.api.client import Client
from laxity.api.job_follower import submit_patience_s
from laxity.flow.declaration import Declaration
from laxity.flow.decorator import check_function
from laxity.job.qos import QoSError, check_whole
from laxity.job.spec import dns_label
from laxity.stderr import say
from laxity.sweeps.result import SweepResult
from laxity.sweeps.sweep_loop import SweepRun, TrialJobs
from laxity.sweeps.trials import MOST_TRIALS, Direction, GridTrials, SweepRecord, Trials

if TYPE_CHECKING:
    from optuna import Study

    from laxity.sweeps.optuna_study import StudyTrials

DIRECTIONS: Final = ("minimize", "maximize")
PATIENCE_S: Final = 5.0
LONGEST_GROUP: Final = 50


def sweep(
    study: "Study | None" = None,
    train: Callable[..., Any] | None = None,
    *,
    deadline: Any,
    trials: int | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    metric: str | None = None,
    direction: Direction | None = None,
    name: str | None = None,
    **options: Any,
) -> SweepResult:
    """Try parameters in parallel jobs, so that the best trial is at full length by the deadline.

    With an Optuna `study`, `train(training, trial)` suggests its parameters from the trial, and the
    study's pruner decides at each epoch's end by `metric`, the one figure that is logged if not named.
    With a `grid` of values by name, `train(training, **point)` trains each point. Both return the
    objective, a number. `options` are those of `deadline_flow`: epochs, workers, model, image ...

    Run again after its death, the client goes on with the trials that run. QoSError for what cannot be
    meant, SweepFailed if no trial reaches full length, TrainingFailed if all fail.
    """
    if job := os.environ.get(names.ENV_JOB):
        raise RuntimeError(
            f"laxity.sweep is called inside a worker of {job}; "
            'put the call under if __name__ == "__main__":'
        )
    if train is None or (study is None) == (grid is None):
        raise QoSError("study", "give train, and either an Optuna study or a grid of values")
    if direction not in (None, *DIRECTIONS):
        raise QoSError("direction", f"{direction!r:.40} is neither minimize nor maximize")
    check_function(train)
    title = dns_label(name or train.__name__)
    declared = Declaration.of(title, {"deadline": deadline, **options})
    if declared.qos.deadline is None:
        raise QoSError("deadline", "is missing; write for example 8h or 06:00")
    now = time.time()
    if declared.qos.deadline_at(now) <= now:
        raise QoSError("deadline", f"{declared.qos.deadline_text} has passed already")
    source: Trials
    if grid is not None:
        source, wanted = _open_grid(grid, train, declared.title, direction=direction, trials=trials)
        _check_service()
    else:
        assert study is not None  # noqa: S101 - or there is a grid
        wanted = _check_trials(trials)
        _check_service()
        source = _open_study(study, declared, metric, direction)
    before = source.read_record()
    record = _open_record(source, declared, before)
    is_moved = before is not None and before.uid == record.uid and before != record
    group = f"{dns_label(source.name, longest=LONGEST_GROUP)}-{record.uid[:6]}"
    jobs = TrialJobs(declared, declared.project(train), record, group, is_moved)
    try:
        return SweepRun(Client(patience_s=PATIENCE_S), source, jobs, wanted).run()
    except KeyboardInterrupt:
        say("the trials that run go on; run this again to go on with the sweep")
        raise
    finally:
        source.close()


def _open_grid(
    grid: Mapping[str, Sequence[Any]],
    train: Callable[..., Any],
    title: str,
    *,
    direction: Direction | None,
    trials: int | None,
) -> tuple[GridTrials, int]:
    """The trials of a grid, and how many there are."""
    if trials is not None:
        raise QoSError("trials", "a grid has its number of trials; leave this out")
    source = GridTrials(title, direction or "minimize", grid, train)
    return source, len(source.points)


def _check_trials(trials: int | None) -> int:
    if trials is None:
        raise QoSError("trials", "is missing; write for example trials=64")
    return check_whole("trials", trials, least=1, most=MOST_TRIALS, what="trials")


def _check_service() -> None:
    """ServiceAwayError where none answers: before anything is written."""
    Client(patience_s=submit_patience_s(Client().url)).cluster()


def _open_study(
    study: "Study", declared: Declaration, metric: str | None, direction: Direction | None
) -> "StudyTrials":
    from laxity.sweeps.optuna_study import StudyTrials

    return StudyTrials(
        study,
        title=declared.title,
        epochs=declared.epochs,
        metric=metric or "",
        direction=direction,
    )


def _open_record(trials: Trials, declared: Declaration, record: SweepRecord | None) -> SweepRecord:
    """That of a sweep that goes on, or a new one. Another deadline counts from now on."""
    now, text = time.time(), declared.qos.deadline_text
    if record is None or not record.goes_on(now):
        due_at = declared.qos.deadline_at(now)
        record = SweepRecord(uuid.uuid4().hex[:12], text, due_at, trials.count_all())
    elif record.deadline != text:
        record = SweepRecord(record.uid, text, declared.qos.deadline_at(now), record.first)
    trials.write_record(record)
    return record
