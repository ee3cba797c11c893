"""The demo: a service of its own, eight small trainings under deadlines, and what came of them.

No deadline is written here: each is derived from what laxity itself predicts on this machine, so
the same things happen on a fast and on a slow one.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import webbrowser
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from examples.demo import digits
from laxity import names
from laxity.api.client import Client, JobView, ServiceError
from laxity.api.job_view import TERMINAL_STATES, Json
from laxity.api.status_text import state_words
from laxity.cli.exit_codes import BROKEN, FAILED, OK, USAGE, CommandError
from laxity.cli.render.job_panel import offer_words
from laxity.cli.render.job_table import VERDICT_STYLES, console
from laxity.cli.render.progress_lines import ProgressLines
from laxity.flow.declaration import Declaration
from laxity.human_time import format_seconds, wall_time
from laxity.worker.mlflow_tracking import ui_command

EPOCH_S: Final = 0.8  # of one worker, about
LONG_S: Final = 180.0  # for something that takes a few epochs, on a slow and busy machine
END_S: Final = 1200.0  # on a machine that others slow down, too
LOOK_S: Final = 0.3
UID_LENGTH: Final = 8  # at least so much of a uid stands in the name of a checkpoint folder
MARK: Final = "made-by-laxity-demo"
FOREIGN: Final = ("PREFECT_", "MLFLOW_", "LAXITY_")  # a user's own servers are none of its business
OWN_ENVIRONMENT: Final = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    names.ENV_TRACKED_BY: "service",  # or each of the short trainings would import MLflow
    # One worker, one core: the slots are worth the same, and two workers are twice as fast.
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
}


class StoryError(RuntimeError):
    """Something that the demo shows did not happen in time."""


@dataclass(slots=True)
class Story:
    """Plays the acts; `missed` collects what did not happen, `jobs` holds every job by its name."""

    client: Client
    out: Console
    passes: int  # over the data, in an epoch
    jobs: dict[str, JobView] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)
    _lines: dict[str, ProgressLines] = field(default_factory=dict)

    def play(self) -> None:
        """All acts. A step that fails is noted, and the story goes on with the next act."""
        acts: tuple[tuple[str, Callable[[], None]], ...] = (
            ("A model nobody knows is probed first", self.probe),
            ("A deadline is promised", self.promise),
            ("A deadline is refused; its counter-offer is taken", self.refuse),
            ("A promise is moved forward: the job grows, best effort makes room", self.grow),
            ("An urgent job finds room", self.urge),
            ("A soft job is told early that it will be late", self.warn),
            ("Everything comes to its end", self.end),
        )
        for title, act in acts:
            self.say(f"== {title}", style="bold cyan")
            try:
                act()
            except (StoryError, ServiceError) as error:
                self.missed.append(str(error))
                self.say(str(error), style="bold red")

    # --- the acts ---

    def probe(self) -> None:
        """Before anybody has trained this model nothing can be promised on it."""
        answer = self.client.whatif(self._manifest("weekly-report", epochs=40, deadline="600s"))
        code = answer.get("reason_code")
        self.say(f"whatif weekly-report: {answer.get('verdict')} [{code}]")
        self._expect(code == "unknown_model_needs_profiling", "an unknown model is refused")
        night: Json = {"model": "demo-night", "workers": 1, "epoch_estimate": "1.2s"}
        self._submit("probe", epochs=4, workers=1)
        self._submit("overnight", epochs=40, **night)
        self._submit("sweep", epochs=36, **night)
        self._await("probe", "its end", lambda job: job.state == "finished")

    def promise(self) -> None:
        """So late that one worker is enough: it starts narrow."""
        self._submit("weekly-report", epochs=40, slack=2.6)
        self._await("weekly-report", "an epoch", lambda job: job.epochs_done >= 1)

    def refuse(self) -> None:
        """One is refused for good; the other takes the later deadline that it is offered."""
        self._submit("moonshot", epochs=200, deadline="20s")
        rush = self._submit("rush", epochs=8, workers=1, slack=0.4)
        self._expect(rush.state == "refused", "a deadline that is too soon is refused")
        for _ in range(3):  # an offer was checked, not held: a newer one may be needed
            number = next((n for n, row in enumerate(rush.offers, 1) if row.kind == "deadline"), 0)
            self._expect(number, "a later deadline is offered")
            for n, offer in enumerate(rush.offers, start=1):
                self.say(f"  offer {n}: {offer_words(offer, time.time())}")
            self.say(f"laxity accept rush {number}")
            rush = self.client.accept(rush.id, number)
            if rush.verdict == "promised":
                break
        self._await("rush", "its start", lambda job: job.workers > 0)

    def grow(self) -> None:
        """Ask for the running job's end sooner than its present width allows."""
        job = self._await("weekly-report", "it runs on one worker", lambda job: job.formed == 1)
        for share in (0.7, 0.8, 0.9):
            left_s = (job.p90_at or time.time()) - time.time()
            wished_s = time.time() + share * left_s - (job.submitted_at or 0.0)
            if self._amend(job, f"{wished_s:.1f}s"):
                break
        self._await("weekly-report", "it trains on two workers", lambda job: job.formed == 2)
        self.until("a best-effort job makes room", self._has_made_room)

    def urge(self) -> None:
        urgent = self._submit("urgent", epochs=6, workers=1, slack=1.4)
        self._expect(urgent.verdict == "promised", "an urgent job is promised")

    def warn(self) -> None:
        late = self._submit(
            "weekend-art", epochs=5, service_class="soft", deadline=f"{3 * EPOCH_S:.1f}s"
        )
        self._expect(late.verdict == "forecast", "a soft job is never refused")

    def end(self) -> None:
        names_ = list(self.jobs)
        self.until(
            "all jobs end",
            lambda: all(self.jobs[name].state in TERMINAL_STATES for name in names_),
            limit_s=END_S,
        )
        self._expect(self.jobs["rush"].kept, "the counter-offer that was taken is kept")

    # --- what the acts are made of ---

    def say(self, words: str, *, style: str = "") -> None:
        """One line of the story."""
        self.out.print(Text(f"{time.strftime('%H:%M:%S')} {words}", style=style))

    def until(self, what: str, so: Callable[[], bool], *, limit_s: float = LONG_S) -> None:
        """Look at all jobs and say what changed until it is so; StoryError if it takes too long."""
        give_up_at = time.monotonic() + limit_s
        while True:
            for job in self.client.jobs():
                self._look_at(job)
            if so():
                return
            if time.monotonic() > give_up_at:
                raise StoryError(f"{what}: not within {limit_s:.0f} s")
            time.sleep(LOOK_S)

    def _look_at(self, job: JobView) -> None:
        name = job.id.partition("/")[2]
        before, self.jobs[name] = self.jobs.get(name), job
        if job.state in TERMINAL_STATES and (before is None or before.state != job.state):
            reason = f": {job.reason}" if job.state == "refused" else ""
            self.say(f"{name}: {state_words(job)}{reason}", style="red" if job.broken else "green")
        lines = self._lines.setdefault(name, ProgressLines(lambda text: self.out.print(Text(text))))
        lines.on_change(job)

    def _await(self, name: str, what: str, so: Callable[[JobView], bool]) -> JobView:
        self.until(f"{name}: {what}", lambda: so(self.jobs[name]))
        return self.jobs[name]

    def _submit(self, name: str, *, slack: float = 0.0, **options: Any) -> JobView:
        """Submit a job and wait for its verdict; with `slack` due at so many times the soonest end that laxity would promise."""
        if slack:
            options["deadline"] = f"{slack * self._soonest_s(name, **options):.1f}s"
        due = f"--deadline {options['deadline']}" if "deadline" in options else "without a deadline"
        self.say(f"laxity submit digits.py:train_digits --name {name} {due}")
        self._look_at(self.client.submit(self._manifest(name, **options)))
        return self._await(name, "a verdict", lambda job: job.verdict != "none")

    def _manifest(self, name: str, **options: Any) -> Json:
        declared = Declaration.of(name, {"model": "demo-digits", "workers": (1, 2), **options})
        spec = declared.spec(
            entry=f"{Path(digits.__file__).resolve()}:train_digits",
            parameters={"passes": self.passes},
        )
        return {
            **(manifest := spec.to_manifest()),
            "metadata": {**manifest["metadata"], "name": name},
        }

    def _soonest_s(self, name: str, **options: Any) -> float:
        """How soon it would be promised if it were submitted now, by laxity's own counter-offer."""
        answer = self.client.whatif(self._manifest(name, **options, deadline="0.5s"))
        ends = [
            row["p90_at"] for row in answer.get("offers") or () if row.get("kind") == "deadline"
        ]
        if not ends:
            raise StoryError(f"whatif offers no deadline for {name}: {answer.get('reason')}")
        soonest_s = float(min(ends)) - time.time()
        self.say(f"whatif {name}: promised from {format_seconds(soonest_s)} on")
        return soonest_s

    def _amend(self, job: JobView, deadline: str) -> bool:
        """Whether another deadline was promised; the old promise stands if not."""
        try:
            answer = self.client.amend(job.id, deadline)
        except ServiceError as error:
            self.say(f"laxity amend --deadline {deadline}: {error}")
            return False
        moved = (answer.deadline_at or 0.0) < (job.deadline_at or 0.0) - 0.5
        self.say(f"laxity amend --deadline {deadline}: {'promised' if moved else 'refused'}")
        return moved

    def _has_made_room(self) -> bool:
        return any(self.jobs[name].preemptions for name in ("overnight", "sweep"))

    def _expect(self, so: object, what: str) -> None:
        if not so:
            raise StoryError(f"{what}: it does not")


def play_demo(folder: Path, *, slots: int) -> int:
    """The whole demo; its exit code. Nothing that it started is left running."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: all is cleared away
    out, environment = console(), demo_environment(folder)
    empty_folder(folder, environment)
    out.print("Starting the service and its MLflow store")
    try:
        run_laxity(environment, "up", "--slots", str(slots), "--port", "0")
        running = json.loads((folder / "service.json").read_text())
        client = Client(running["url"], running["token"], patience_s=20.0)
        story = Story(client, out, count_passes(environment))
        story.say(f"one epoch is {story.passes} passes over the data, about {EPOCH_S} s")
        show_page(out, client, folder)
        story.play()
        trained = {name: epochs_trained(folder, job) for name, job in story.jobs.items()}
        out.print(report_table(story.jobs, trained))
        out.print("\nPredicted and actual epoch times, promises and outcomes of each run:")
        out.print(
            Text(
                "  " + ui_command(f"sqlite:///{folder / 'mlflow.db'}", program=".venv/bin/mlflow"),
                style="bold",
            )
        )
        wait_for_reader(out)
        return judge(story.jobs, trained, missed=story.missed)
    finally:
        out.print("Stopping everything that the demo started")
        run_laxity(environment, "down")


def demo_environment(folder: Path) -> dict[str, str]:
    """The environment of everything in the demo: its own home, one core a worker, no noise."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return {**inherited, **OWN_ENVIRONMENT, names.ENV_HOME: str(folder)}


def run_laxity(environment: dict[str, str], *arguments: str) -> None:
    """A laxity command in the demo's environment; CommandError with what it said if it fails."""
    command = [sys.executable, "-P", "-m", "laxity.cli.main", *arguments]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise CommandError(f"laxity {arguments[0]}: {ran.stderr.strip() or ran.stdout.strip()}")


def empty_folder(folder: Path, environment: dict[str, str]) -> None:
    """An empty folder, and no service of an earlier demo in it.

    Only what a demo made is wiped: CommandError for a folder that holds anything else.
    """
    mark = folder / MARK
    if mark.exists():
        run_laxity(environment, "down")
        shutil.rmtree(folder)
    elif folder.exists() and any(folder.iterdir()):
        message = f"{folder} is not empty and no demo made it: name another --home"
        raise CommandError(message, code=USAGE)
    folder.mkdir(parents=True, exist_ok=True)
    mark.touch()


def count_passes(environment: dict[str, str]) -> int:
    """How many passes over the data make an epoch here."""
    command = [sys.executable, "-P", "-m", "examples.demo.digits"]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return max(1, round(EPOCH_S / float(answer.stdout)))


def show_page(out: Console, client: Client, folder: Path) -> None:
    """Open the page, on which the story can be watched; without a terminal, say how to open it later."""
    if not out.is_terminal:
        out.print(Text(f"On a time axis: export LAXITY_HOME={folder}; laxity up; laxity ui"))
        return
    address = client.page_address()
    is_open = webbrowser.open(address)
    out.print(
        "The page is open in your browser." if is_open else Text(f"Within a minute, open {address}")
    )


def wait_for_reader(out: Console) -> None:
    """Keep the page alive until Enter, for somebody at a terminal."""
    if out.is_terminal and sys.stdin.isatty():
        with suppress(EOFError, KeyboardInterrupt):
            input("The page shows what happened. Press Enter to stop the service. ")


def epochs_trained(folder: Path, job: JobView) -> tuple[int, ...]:
    """What the training itself wrote for each epoch that it trained to its end."""
    namespace, _, name = job.id.partition("/")
    place = folder / "checkpoints" / namespace
    logs = place.glob(f"{name}-{job.uid[:UID_LENGTH]}*/{digits.EXECUTIONS}")
    return tuple(int(line) for path in logs for line in path.read_text().split())


def report_table(jobs: dict[str, JobView], trained: dict[str, tuple[int, ...]]) -> Table:
    """Promised against actual."""
    table = Table(title="\nPromised and actual", title_justify="left", box=None, pad_edge=False)
    for name in ("JOB", "CLASS", "VERDICT"):
        table.add_column(name, no_wrap=True)
    for name in ("DEADLINE", "PROMISED P90", "FINISHED", "WIDTHS", "STOPS", "EPOCHS"):
        table.add_column(name, no_wrap=True, justify="right")
    table.add_column("OUTCOME", no_wrap=True)
    for name, job in jobs.items():
        ended_at = job.finished_at or job.submitted_at or 0.0
        table.add_row(
            Text(name, style="bold"),
            job.service_class,
            Text(job.verdict, style=VERDICT_STYLES.get(job.verdict, "")),
            wall_time(job.deadline_at, ended_at),
            wall_time(job.given_p90_at, ended_at),
            wall_time(job.finished_at, ended_at),
            ",".join(map(str, widths_run(job))) or "-",
            str(job.preemptions or "-"),
            f"{len(trained[name])}/{expected_epochs(job)}",
            Text(state_words(job), style="red" if job.kept is False else "green"),
        )
    return table


def widths_run(job: JobView) -> list[int]:
    """The widths it ran at, in order; a stop and a start at the same width count once."""
    run: list[int] = []
    for _, workers in job.width_history:
        if workers and (not run or run[-1] != workers):
            run.append(workers)
    return run


def expected_epochs(job: JobView) -> int:
    """How many epochs it has to train: a refused job none."""
    return 0 if job.state == "refused" else job.epochs


def judge(
    jobs: dict[str, JobView], trained: Mapping[str, Sequence[int]], *, missed: Iterable[str]
) -> int:
    """The exit code, with a line for each thing that is not as it should be."""
    wrong = [f"did not happen: {what}" for what in missed]
    for name, job in jobs.items():
        expected = list(range(1, expected_epochs(job) + 1))
        if list(trained[name]) != expected:
            wrong.append(f"{name}: epochs trained {list(trained[name])}, not 1 to {len(expected)}")
    unreported = [name for name, job in jobs.items() if job.broken and not job.raw.get("broken")]
    wrong += [f"{name}: its promise was broken and nobody was told" for name in unreported]
    for line in wrong:
        sys.stderr.write(f"{line}\n")
    if unreported:
        return BROKEN
    return FAILED if wrong else OK
