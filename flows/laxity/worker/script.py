"""A script or program as a training function: it is run unchanged, and its progress is heard.

`laxity run` declares this function. The script posts its progress as KEP-2779 has it; each per cent
is an epoch of the training. So history, forecasts, verdicts, stops and MLflow are those of any other
training. A script that posts nothing is one epoch, which lasts as long as the script.
"""

import os
import queue
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, Final

from laxity import names
from laxity.durable_files import replace_file
from laxity.job.pod_template import RESERVED_ENV
from laxity.job.worker_exits import SIGNALLED, signal_text
from laxity.stderr import say
from laxity.worker.checkpoints.training_state import ScriptError, TrainingError
from laxity.worker.progress.progress_posts import UNITS, Post, UnitTimes, begins_at_zero
from laxity.worker.progress.progress_server import HOST, ProgressServer
from laxity.worker.sigterm import BeginAnew, TrainingStopped
from laxity.worker.training import Training, run_of
from laxity.worker.worker_run import WorkerRun

LOOK_S: Final = 0.25
LONGEST_COMMAND: Final = 80
NO_PROGRESS: Final = "no progress was reported: predicted by its run time"
NOT_RESUMED: Final = "the script began at 0 % again after a stop: it is not stopped for other jobs"
CUT_OFF: Final = (
    "the steps are done, and the stop has ended what the script does then: it does so again"
)
NOT_DECLARED: Final = "the script is not known to go on after a stop"
DECLARE: Final = "If it goes on from its own checkpoint, submit it with --resumes"


def run_script(
    training: Training,
    command: list[str],
    resume_args: list[str] | None = None,
    grace_s: int = 30,
) -> dict[str, Any]:
    """Run the command to its end; its last progress in per cent (None: none) and last metrics.

    `resume_args` are appended where an earlier start has trained something. After SIGTERM the script
    has `grace_s` seconds. ScriptError if it fails.
    """
    run = run_of(training)
    run.explain_no_state(NOT_DECLARED, DECLARE)
    if training.total_epochs not in (1, UNITS):  # a probe, of two epochs
        run.recount(UNITS)
    with TemporaryDirectory(prefix="laxity-") as folder:
        posts: queue.SimpleQueue[Post] = queue.SimpleQueue()
        with ProgressServer(Path(folder), posts.put) as server:
            return ScriptRun(training, posts, grace_s).run(
                _full_command(run, command, resume_args or []), _script_env(server.variables)
            )


def _full_command(run: WorkerRun, command: list[str], resume_args: list[str]) -> list[str]:
    """With the arguments that let the script go on, where it can have left a checkpoint.

    One of whose progress nothing is known can, once it was started.
    """
    goes_on = run.earlier_epochs or (run.state.total == 1 and run.starts > 1)
    return [*command, *(resume_args if goes_on else [])]


def _script_env(variables: dict[str, str]) -> dict[str, str]:
    """The worker's environment without what is the worker's own, and never by a proxy."""
    own = {*RESERVED_ENV, names.ENV_URL, names.ENV_CHECKPOINTS, names.ENV_SIGNAL}
    env = {name: value for name, value in os.environ.items() if name not in own}
    for name in ("no_proxy", "NO_PROXY"):
        env[name] = ",".join(filter(None, [env.get(name), HOST]))
    return env | {"PYTHONUNBUFFERED": "1"} | variables


class StopNote:
    """A file by which worker 0 lets the others end their scripts: in which group."""

    def __init__(self, folder: Path | None) -> None:
        self._path = folder / "script-stop" if folder is not None else None

    def write(self, formation: str) -> None:
        if self._path is not None:
            replace_file(self._path, formation)

    def names(self, formation: str) -> bool:
        """Whether it is for this group."""
        if self._path is None or not formation:
            return False
        with suppress(OSError):
            return self._path.read_text() == formation
        return False


class ScriptRun:
    """One start of the script, and the training that it is."""

    def __init__(self, training: Training, posts: queue.SimpleQueue[Post], grace_s: float) -> None:
        self._training, self._run = training, run_of(training)
        self._posts, self._grace_s = posts, grace_s
        self._done = training.restore()
        self._units = training.total_epochs
        self._epochs: Iterator[int] | None = None
        self._times: UnitTimes | None = None
        self._early: list[Post] = []  # before it is known where the script began
        self._metrics: dict[str, float] = {}
        self._has_posted = False  # progress, in this start
        self._began_at = time.monotonic()
        self._stop_note = StopNote(training.folder)
        self._is_ordered = False  # by worker 0: the script's end
        self._run.notices.combines = True  # the script's own affair

    def run(self, command: list[str], env: dict[str, str]) -> dict[str, Any]:
        try:
            self._process = subprocess.Popen(command, env=env, process_group=0)
        except OSError as error:
            raise TrainingError(f"cannot start {command[0]!r}: {error.strerror}") from error
        try:
            if self._training.rank:
                self._accompany()
            else:
                self._follow()
            self._settle(shlex.join(command)[:LONGEST_COMMAND])
        except TrainingStopped:
            self._end_script()
            raise
        finally:
            self._signal_group(signal.SIGKILL)  # what it has left behind
        share = self._times.share if self._times is not None and self._has_posted else None
        return {names.PROGRESS: share and round(100 * share, 1), **self._metrics}

    def _follow(self) -> None:
        """Count what the script posts, until it has ended or an order has ended it."""
        if self._units == 1:
            self._enter(self._began_at)
        while self._process.poll() is None:
            with suppress(queue.Empty):
                self._take(self._posts.get(timeout=LOOK_S))
            if self._training.done:
                continue
            if self._run.is_told_to_stop:
                self._stop()
            elif self._run.has_other_width:
                self._end_all()
                self._run.start_anew()
        self._take_rest()

    def _accompany(self) -> None:
        """Another worker than worker 0, which counts the epochs and tells when to end the script."""
        failures: list[BaseException] = []

        def pass_epochs() -> None:
            try:
                for _ in self._training.epochs(unit=1):
                    self._run.date_epoch(ended_at=time.monotonic())
            except BaseException as error:  # noqa: BLE001 - raised by the main thread
                failures.append(error)

        loop = Thread(target=pass_epochs, name="laxity-epochs", daemon=True)
        loop.start()
        while loop.is_alive() or self._process.poll() is None:
            time.sleep(LOOK_S)
            if failures:
                raise failures[0]
            if not self._is_ordered and self._stop_note.names(self._run.formation):
                self._is_ordered = True
                self._end_script()
            if self._process.poll() and not self._is_ordered:
                return

    def _take_rest(self) -> None:
        while not self._posts.empty():
            self._take(self._posts.get())

    # --- progress ---

    def _take(self, post: Post) -> None:
        """Count the units that have ended by this post; its metrics are those of the last one."""
        self._metrics |= post.metrics
        self._has_posted |= post.share is not None
        if self._times is not None:
            self._count(self._times, post)
            return
        self._early.append(post)
        began_at = self._where_it_begins()
        if began_at is not None:
            self._enter(began_at)

    def _where_it_begins(self) -> float | None:
        """When the work of this start began, in monotonic seconds; None: not known yet."""
        shares = [post.share for post in self._early if post.share is not None]
        if not shares:
            return None
        if self._done:
            at_zero = begins_at_zero(shares, self._done / self._units)
            if at_zero is None:
                return None
            if at_zero:
                say(NOT_RESUMED)
                self._run.begin_anew()
                self._done = 0
        first = self._early[0]
        return first.at if shares[0] * self._units <= self._done + 1 else self._began_at

    def _enter(self, began_at: float) -> None:
        """Enter the training's loop, and count what was posted before."""
        self._epochs = iter(self._training.epochs(unit=1))
        self._run.date_epoch(began_at=began_at)
        next(self._epochs, None)
        self._times = UnitTimes(self._units, began_at, self._done / self._units)
        early, self._early = self._early, []
        for post in early:
            self._count(self._times, post)

    def _count(self, times: UnitTimes, post: Post) -> None:
        ends = times.take(post)
        for ended_at in ends[:-1]:
            self._end_unit(ended_at)
        self._training.log(**post.metrics)
        if ends:
            self._end_unit(ends[-1])

    def _end_unit(self, ended_at: float) -> None:
        self._run.date_epoch(ended_at=ended_at)
        if self._epochs is not None:
            next(self._epochs, None)

    # --- the end ---

    def _settle(self, command: str) -> None:
        """The script has ended: count what is left, or raise the error that it ended with."""
        code = self._process.returncode
        if code and not self._is_ordered:
            raise ScriptError(f"{command}: {_exit_text(code)}")
        if self._training.rank:
            return
        if self._times is None:
            if not self._done:
                say(NO_PROGRESS)
                self._units = 1
                self._run.recount(1, since=self._began_at)
            self._enter(self._began_at)
        if self._units == 1 and not self._training.done:
            self._end_unit(time.monotonic())

    def _stop(self) -> None:
        """Told to stop: end the script, and wait for SIGTERM. It is done if its steps are."""
        self._end_all()
        if self._times is not None:
            self._times.by_steps_only = True
        self._take_rest()
        if self._training.done:
            if self._process.returncode:
                raise BeginAnew(CUT_OFF)
            return
        if self._epochs is None:
            self._enter(self._began_at)  # parks before the first unit
        else:
            self._run.park()
        raise BeginAnew("the stop was taken back: the script starts again")

    def _end_all(self) -> None:
        """End the scripts of all workers that train together."""
        self._stop_note.write(self._run.formation)
        self._end_script()

    def _end_script(self) -> None:
        """SIGTERM to all that the script has started, SIGKILL after its grace."""
        self._signal_group(signal.SIGTERM)
        until = time.monotonic() + self._grace_s
        while self._is_alive() and time.monotonic() < until:
            time.sleep(0.05)
        self._signal_group(signal.SIGKILL)
        self._process.wait()

    def _is_alive(self) -> bool:
        """Whether a process of the script's group is there. Ended ones that came to us are reaped."""
        if self._process.poll() is not None:
            with suppress(ChildProcessError):
                while os.waitpid(-self._process.pid, os.WNOHANG)[0]:
                    pass
        return self._signal_group(0)

    def _signal_group(self, number: int) -> bool:
        """Whether the group was there to be signalled."""
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        return True


def _exit_text(code: int) -> str:
    if code < 0:
        return f"ended by {signal_text(-code) or f'signal {-code}'}"
    by = signal_text(code - SIGNALLED)
    return f"exit code {code} ({by})" if by else f"exit code {code}"
