"""One worker of a job: `python -m laxity.worker module:function`, or `/path/file.py:function`.

Exit 0: the training is done. 1: it failed, and another start would, too. 70: it raised, and another
start may get further. 75: another worker was lost, start again. 143: told to stop; the next start
goes on. Only exit 0 may complete a Job, so nothing else ends so.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from laxity import names
from laxity.api.report_lines import ReportKind
from laxity.durable_files import replace_file
from laxity.human_time import count_noun
from laxity.job.worker_exits import EXIT_RAISED, USAGE
from laxity.safe_text import without_secrets
from laxity.stderr import flush_output, say, write_out
from laxity.worker import failure_file, launcher, prefect_context
from laxity.worker.checkpoints.training_state import ScriptError
from laxity.worker.code.code_copy import import_from_copy
from laxity.worker.code.entrypoint import call_arguments, error_place, load_function
from laxity.worker.code.environment import WorkerEnvironment, WorkerEnvironmentError
from laxity.worker.early_exit import no_early_success
from laxity.worker.function_result import plain_result
from laxity.worker.leftovers import leave
from laxity.worker.mlflow_tracking import Tracker
from laxity.worker.sigterm import (
    EXIT_RESTART,
    EXIT_STOPPED,
    BeginAnew,
    EndedWithout,
    SigtermHandler,
    Superseded,
    TrainingStopped,
)
from laxity.worker.training import CheckpointError, Training, TrainingError, training_of
from laxity.worker.worker_run import WorkerRun

RESULT: Final = "result.json"
FAILED: Final = 1
INTERRUPTED: Final = 130
ERROR_LENGTH: Final = 2000
NEVER_ENTERED: Final = (
    "the function ended without entering training.epochs(), so none of its {epochs} is counted. Train "
    "in `for epoch in training.epochs():`, or declare epochs=1: the whole function is then one epoch"
)
ENDED_ITSELF: Final = "the function ended its process with os._exit(0) before the last epoch's end"
NOT_KEPT: Final = (
    "the training is done; of its result this is kept only as a text: {what}. To keep it, write it "
    "to a file in training.folder or log it to MLflow"
)
NOT_TOLD: Final = (
    f"this pod of a Job is not told which ({names.ENV_JOB} is not set): it trains alone, and nobody "
    "hears of its epochs; the lines that its container needs are in docs/manifest.md"
)
NOT_IN_MLFLOW: Final = (
    "neither MLflow nor the service took the last {count} points; they are in the reports of the "
    "training's folder: a service on this machine logs them when it is back, another one does not"
)
_STARTED_AT: Final = time.time()
_FINISHED_S: Final = 60.0  # at most, until the service has every report
_TRACKED_S: Final = 20.0  # at most, until MLflow has every point; at once if it does not answer
_FAILED_S: Final = 10.0
_STOPPED_S: Final = 2.0


class BeforeCallError(Exception):
    """What was raised while the training function was imported, or its parameters were read."""


# No start mends these: another one would only fail again.
FINAL: Final = (
    BeforeCallError,
    ImportError,
    SyntaxError,
    SystemExit,
    TrainingError,
    CheckpointError,
)


def main(argv: list[str]) -> int:
    """Run the training function of one worker; the exit code."""
    termination = SigtermHandler()
    if len(argv) != 1:
        say("usage: python -m laxity.worker module:function | /path/file.py:function")
        return USAGE
    try:
        termination.install()
        environment = WorkerEnvironment.of(os.environ)
        run = WorkerRun(environment, termination)
        if environment.launcher and not run.launch():
            return 0  # all epochs are done
        prefect_context.watch_imports(
            os.environ, lambda: _flow_run(run), leads=environment.index == 0
        )
    except (WorkerEnvironmentError, OSError) as error:
        say(str(error))
        return USAGE
    except TrainingStopped:
        return EXIT_STOPPED
    if not environment.job and names.ENV_INDEX in os.environ:
        say(NOT_TOLD)
    code = run_to_completion(run, termination, lambda: _run_entry(run, argv[0]))
    if code == 0:
        termination.ignore()
    return code


def run_to_completion(run: WorkerRun, termination: SigtermHandler, call: Callable[[], Any]) -> int:
    """Call the training function to an end of some kind, and report which; the exit code."""
    try:
        if not launcher.is_anew():
            _append_report(run, "started", worker_pid=os.getpid(), width=run.state.width)
        began = time.monotonic()
        with run.notices.expect_loop(lambda: run.started):
            result = call_function(run, termination, call)
        if termination.asked and not run.complete:
            return save_and_stop(run, termination)  # the user's code swallowed the exception
        _require_epochs(run, began, result)
        run.finish()
        if run.state.rank == 0:
            report_finish(run, termination, result)
    except TrainingStopped:
        return save_and_stop(run, termination)
    except (Superseded, EndedWithout) as why:
        say(
            str(why)
        )  # superseded: not AGAIN, a flow run that is the Job would begin anew, and supersede
        return EXIT_STOPPED if isinstance(why, Superseded) else 0
    except BeginAnew as why:
        say(str(why))
        _hand_over(run, at_most_s=_STOPPED_S)
        return EXIT_RESTART
    except KeyboardInterrupt:
        return INTERRUPTED
    except BaseException as error:  # noqa: BLE001 - also SystemExit: exit 0 would complete the Job
        if termination.asked:
            return save_and_stop(run, termination)
        return report_failure(run, termination, error)
    return 0


def call_function(run: WorkerRun, termination: SigtermHandler, call: Callable[[], Any]) -> Any:
    """What the training function returns; one that ends the process with exit 0 has failed.

    Once all epochs are trained it may, as other workers than worker 0 often do: it returns nothing.
    """

    def fail() -> int:
        message = ENDED_ITSELF if run.started else _never_entered(run)
        return report_failure(run, termination, TrainingError(message))

    try:
        with no_early_success(lambda: run.complete, fail):
            return call()
    except SystemExit as end:
        if run.complete and not end.code:
            return None
        raise


def _flow_run(run: WorkerRun) -> str:
    """Id of the flow run that follows the job now; "" if nobody has said."""
    return run.reports.signal.flow_run if run.reports is not None else ""


def _run_entry(run: WorkerRun, entry: str) -> Any:
    try:
        function = load_function(import_from_copy(entry))
        prefect_context.print_to_log(os.environ)
        call = _prepare_call(function, training_of(run))
    except Exception as error:
        raise BeforeCallError from error
    return call()


def _prepare_call(function: Callable[..., Any], training: Training) -> Callable[[], Any]:
    """The call of the training function, or of the trial of a sweep that it trains."""
    parameters = os.environ.get(names.ENV_PARAMETERS, "")
    if trial := os.environ.get(names.ENV_TRIAL):
        from laxity.worker.trial import prepare_trial

        return prepare_trial(function, training, trial, parameters)
    return partial(function, **call_arguments(function, training, parameters))


def _require_epochs(run: WorkerRun, began: float, result: Any) -> None:
    """TrainingError, with the result in the folder, where a function has no loop over its epochs."""
    if not run.started:
        run.count_whole(began)
    if not run.started:
        json_result, _ = plain_result(result)
        _write_result(run, json_result)
        raise TrainingError(_never_entered(run), json_result=json_result)


def _never_entered(run: WorkerRun) -> str:
    return NEVER_ENTERED.format(epochs=count_noun(run.state.total, "epoch"))


def report_finish(run: WorkerRun, termination: SigtermHandler, result: Any) -> None:
    json_result, odd = plain_result(result)
    if odd:
        say(NOT_KEPT.format(what=odd))
    _write_result(run, json_result)
    fields = {"result": json_result, "epochs_done": run.epoch, **_finishing_time(run)}
    if run.judged or run.notices.went_on_alone():
        fields["judged"] = True  # its number of epochs tells nothing of how many the next one takes
    with suppress(TrainingStopped), termination.defer():  # the result must get out
        _report_end(run, "finished", at_most_s=_FINISHED_S, **fields)


def _write_result(run: WorkerRun, json_result: Any) -> None:
    if run.state.environment.folder is not None:
        try:
            replace_file(run.state.environment.folder / RESULT, json.dumps(json_result))
        except OSError as error:
            say(
                f"{RESULT} cannot be written to {run.state.environment.folder}: {error.strerror}; it is reported"
            )


def _finishing_time(run: WorkerRun) -> dict[str, float]:
    """Field of the last report: seconds since the last epoch, where this process trained it."""
    ended = run.reports.epoch_ended if run.reports is not None else None
    return {} if ended is None else {"finishing_s": time.monotonic() - ended}


def _report_end(run: WorkerRun, kind: ReportKind, *, at_most_s: float, **fields: Any) -> None:
    """Report how the training ended; again, with its points, where MLflow does not take them now.

    The first report does not wait for MLflow. The second is for a service that was away, too.
    """
    reports, tracker = run.reports, run.tracker
    _append_report(run, kind, **fields, **_unlogged_points(run))
    left: list[dict[str, Any]] = []
    if tracker is not None and not _flush(tracker, at_most_s=at_most_s, outcome=kind.upper()):
        left = [point.to_json() for point in tracker.take_left(starts_again=False)]
    if left and reports is not None:
        _append_report(run, kind, **fields, points=left)
    sent = reports is not None and reports.drain(at_most_s=at_most_s)
    if left and not sent:
        say(NOT_IN_MLFLOW.format(count=len(left)))
    prefect_context.flush_logs()


def _unlogged_points(run: WorkerRun) -> dict[str, Any]:
    """Field of a last report: what the service logs to MLflow where nothing has opened it here yet.

    A short training would hold its GPUs for the seconds that the import of MLflow takes.
    """
    reports, tracker = run.reports, run.tracker
    if reports is None or tracker is None or not reports.takes_points():
        return {}
    points = [point.to_json() for point in tracker.take_unlogged()]
    return {"points": points} if points else {}


def save_and_stop(run: WorkerRun, termination: SigtermHandler) -> int:
    try:
        with suppress(TrainingStopped):
            run.save_rest()
    except CheckpointError as error:  # it would begin at epoch 1
        return report_failure(run, termination, error)
    if points := _unlogged_points(run):
        _append_report(run, "stopped", **points)  # a cancelled job has no next start
    _hand_over(run, at_most_s=_tell_of_others(run))
    return EXIT_STOPPED


def _tell_of_others(run: WorkerRun) -> float:
    """Another worker that failed cannot report it itself. How long the reports may take."""
    failure = ""
    if run.state.rank == 0 and run.state.environment.folder is not None:
        failure = failure_file.read_failure(run.state.environment.folder, since=_STARTED_AT)
    if failure:
        _append_report(run, "failed", error=failure[:ERROR_LENGTH])
    return _FAILED_S if failure else _STOPPED_S


def report_failure(run: WorkerRun, termination: SigtermHandler, error: BaseException) -> int:
    """Report the error; the exit code says whether another start may get further."""
    code = FAILED if isinstance(error, FINAL) else EXIT_RAISED
    if isinstance(error, BeforeCallError) and error.__cause__ is not None:
        error = error.__cause__
    frames = traceback.format_exception(error)
    write_out(frames[-1] if isinstance(error, ScriptError) else "".join(frames))
    if _others_lost(run):
        say("another worker is gone: this one starts again from the last checkpoint")
        with suppress(TrainingStopped), termination.defer():
            _hand_over(run, at_most_s=_tell_of_others(run))
        return EXIT_RESTART
    message = without_secrets(_describe_error(error))[:ERROR_LENGTH]
    if run.state.rank and run.state.environment.folder is not None:
        failure_file.write_failure(run.state.environment.folder, run.state.rank, message)
    # Another worker that failed first ends the Job: the SIGTERM that follows must not cut this off.
    kept = {"result": error.json_result} if isinstance(error, TrainingError) else {}
    with suppress(TrainingStopped), termination.defer():
        _report_end(run, "failed", at_most_s=_FAILED_S, error=message, **kept)
    return code


def _describe_error(error: BaseException) -> str:
    """The error in a line; where it has no text of its own, with its place."""
    text = str(error)
    if isinstance(error, ScriptError):
        return text
    if isinstance(error, SystemExit):
        code = "" if error.code is None else repr(error.code)
        text = f"the function called sys.exit({code}){error_place(error)}"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__ + error_place(error)


def _others_lost(run: WorkerRun) -> bool:
    """A lost worker shows in the library that talks to it first, in our connection a moment later."""
    until = time.monotonic() + 1.0
    while run.state.width > 1 and time.monotonic() < until:
        if run.has_lost_others():
            return True
        time.sleep(0.1)
    return False


def _hand_over(run: WorkerRun, *, at_most_s: float) -> None:
    """Let the reports and MLflow's points out, for so long.

    A stop is not the time to import MLflow: the next start logs again what is in the reports. What an
    open MLflow does not take now goes to the service: a cancelled job has no next start.
    """
    reports, tracker = run.reports, run.tracker
    with suppress(TrainingStopped):
        if tracker is not None and tracker.opened and not _flush(tracker, at_most_s=at_most_s):
            _hand_over_left_points(run, tracker)
        if reports is not None:
            reports.drain(at_most_s=at_most_s)
        prefect_context.flush_logs()


def _hand_over_left_points(run: WorkerRun, tracker: Tracker) -> None:
    if run.reports is not None and run.reports.takes_points():
        points = [point.to_json() for point in tracker.take_left(starts_again=True)]
        if points:
            _append_report(run, "stopped", points=points)


def _flush(tracker: Tracker, *, at_most_s: float, outcome: str = "") -> bool:
    return tracker.flush(at_most_s=min(at_most_s, _TRACKED_S), outcome=outcome)


def _append_report(run: WorkerRun, kind: ReportKind, **fields: Any) -> None:
    if run.reports is not None:
        run.reports.append(kind, **fields)


def _start_worker() -> None:
    code = main(sys.argv[1:])
    flush_output()
    if code == EXIT_RESTART and os.environ.get(names.ENV_LAUNCHER):
        launcher.start_anew("a worker is gone")
    if code in (EXIT_STOPPED, EXIT_RESTART):
        os._exit(code)  # the user's threads and exit hooks must not outlast the grace
    leave(code)


if __name__ == "__main__":
    _start_worker()
