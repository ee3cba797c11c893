"""The demo from the first process to the report: opens the stage, plays the story, clears away."""

import signal
import sys
import time
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from rich.console import Console
from rich.text import Text

from examples.demo.demo_report import Ended, executions, print_report, report_of, write_report
from examples.demo.display import Screen
from examples.demo.job_poller import JobPoller
from examples.demo.parts import cast_for
from examples.demo.scenario import Story
from examples.demo.servers import Stage, open_stage
from laxity.api.client import Client
from laxity.cli.exit_codes import BROKEN, FAILED, OK
from laxity.cli.render.job_table import console
from laxity.human_time import format_seconds

EPOCH_S: Final = 0.8


def play_demo(folder: Path, *, slots: int) -> int:
    """The whole demo; its exit code. Nothing that it started is left running."""
    began = time.monotonic()
    out = console()
    with exit_on_sigterm(), ExitStack() as stack:
        with Screen(out) as screen:
            screen.play("Starting: the service, a Prefect API, an MLflow store")
            stage = open_stage(folder, slots=slots)
            stack.callback(stage.close)
            servers_s = stage.ready(screen.say)
            story, watch = play_story(stage, screen, servers_s)
            refused = count_refusals(stage.client)
            ended = at_the_end(story, watch, folder)
        wall_s = time.monotonic() - began
        accepted = story.offer_accepted
        report = report_of(ended, wall_s=wall_s, refused=refused, offer_accepted=accepted)
        write_report(folder / "report.json", report)
        print_report(out, ended, folder=folder)
        show_page(out, stage.client, folder)
        out.print("Stopping everything that the demo started")
    return judge_report(ended, missed=story.missed)


def show_page(out: Console, client: Client, folder: Path) -> None:
    """Open the page on what the demo did, until Enter; without a terminal, say how to open it later."""
    if not (out.is_terminal and sys.stdin.isatty()):
        out.print(Text(f"On a time axis: export LAXITY_HOME={folder}; laxity up; laxity ui"))
        return
    address = client.page_address()
    is_open = webbrowser.open(address)
    out.print(
        "The page is open in your browser." if is_open else Text(f"Within a minute, open {address}")
    )
    with suppress(EOFError, KeyboardInterrupt):
        input("Press Enter to stop everything that the demo started. ")


def play_story(stage: Stage, screen: Screen, servers_s: float) -> tuple[Story, JobPoller]:
    """Play the story with everybody watching, on a stage that took so long to open."""
    passes, epoch_s = measure_epoch(stage)
    screen.say(f"one epoch is {passes} passes over the data, about {epoch_s:.1f} s on this machine")

    def check() -> None:
        stage.check_alive("service")
        stage.check_alive("prefect")

    watch = JobPoller(stage.client, check, screen.look, screen.show_change)
    cast = cast_for(passes, epoch_s, servers_s)
    story = Story(stage.client, watch, screen, stage.processes, cast, epoch_s)
    watch.start()
    try:
        story.play()
    finally:
        watch.stop()
    return story, watch


def measure_epoch(stage: Stage) -> tuple[int, float]:
    """How many passes over the data make an epoch of a good second here, and its length."""
    one_s = float(stage.processes.ask("examples.demo.models"))
    passes = max(1, round(EPOCH_S / one_s))
    return passes, passes * one_s


def count_refusals(client: Client) -> int:
    """How many jobs were refused at some time, also those promised something else later."""
    rows = client.decisions(limit=10_000)
    return len({row.get("job") for row in rows if "refus" in str(row.get("decision")).lower()})


def at_the_end(story: Story, watch: JobPoller, folder: Path) -> list[Ended]:
    """Every job that the story started and the service knows, in the order of the story."""
    jobs = watch.jobs
    return [
        Ended(part, jobs[part.id], executions(folder, jobs[part.id]))
        for part in story.parts
        if part.id in jobs
    ]


def judge_report(ended: Sequence[Ended], *, missed: Sequence[str]) -> int:
    """The exit code, with a line for each thing that is not as it should be."""
    wrong = [f"did not happen: {what}" for what in missed]
    wrong += [
        f"{row.part.name}: epochs trained {list(row.executions)}, expected 1 to {row.expected}"
        for row in ended
        if not row.exactly_once
    ]
    unreported = [row.part.name for row in ended if row.broken_unreported]
    wrong += [
        f"{row.part.name}: waited {format_seconds(row.waited_s)}, longer than the ageing limit"
        for row in ended
        if row.starved
    ]
    wrong += [f"{name}: its promise was broken and nobody was told" for name in unreported]
    for line in wrong:
        sys.stderr.write(f"{line}\n")
    if unreported:
        return BROKEN
    return FAILED if wrong else OK


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """SIGTERM ends the demo as Ctrl-C does: with everything cleared away."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
