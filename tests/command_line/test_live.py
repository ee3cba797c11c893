"""The command line against a real service: what the two agree on is tried, not assumed."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.demo.processes import DemoProcesses, stop_marked
from examples.demo.servers import demo_environment, free_ports
from laxity import names
from laxity.api.client import Client, JobView

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

FLOW = """
import time
from laxity import Training, deadline_flow

@deadline_flow(model="naps", epochs=3, workers=(1, 2), epoch_estimate="300ms")
def nap(training: Training, seconds: float = 0.2) -> int:
    for epoch in training.epochs():
        time.sleep(seconds / training.workers)
        print("slept", epoch, flush=True)
    return training.total_epochs
""".replace("300ms", "0.3s")


class Live:
    """A service of its own, and the command line in front of it."""

    def __init__(self, home: Path, url: str, processes: DemoProcesses) -> None:
        self.home, self.processes = home, processes
        self.client = Client(url, processes.environment[names.ENV_TOKEN], patience_s=30)

    def laxity(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "laxity.cli.main", *arguments],
            env=self.processes.environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    def json(self, *arguments: str) -> Any:
        return json.loads(self.laxity(*arguments, "--json").stdout)

    def ended(self, name: str) -> JobView:
        return self.until(name, lambda job: job.ended)

    def until(self, name: str, so: Callable[[JobView], bool]) -> JobView:
        job = self.client.job(name)
        while not so(job):
            job = self.client.job(name, wait_s=20, seen=job.revision)
        return job


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    home = tmp_path_factory.mktemp("live")
    (home / "naps.py").write_text(FLOW)
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    environment = demo_environment(home, service_url=url, prefect_url="http://127.0.0.1:9/api")
    environment["MLFLOW_TRACKING_URI"] = "none"
    processes = DemoProcesses(home, environment)
    command = [
        sys.executable,
        "-m",
        "laxity.cli.main",
        "serve",
        "--slots",
        "2",
        "--port",
        str(port),
    ]
    process = processes.start("service", command)
    found = Live(home, url, processes)
    pause = threading.Event()
    while not found.client.alive():
        assert process.poll() is None, processes.tail("service")
        pause.wait(0.2)
    yield found
    processes.stop()
    stop_marked(home)


@pytest.fixture
def entry(live: Live) -> str:
    return f"{live.home / 'naps.py'}:nap"


def test_a_function_is_submitted_promised_trained_and_kept(live: Live, entry: str) -> None:
    submitted = live.laxity("submit", entry, "--name", "kept", "--deadline", "2m", "--follow")

    assert submitted.returncode == 0, submitted.stderr
    assert "promised" in submitted.stdout
    shown = live.json("show", "kept")
    assert (shown["state"], shown["result"], shown["epochs_done"]) == ("finished", 3, 3)
    assert live.laxity("logs", "kept").stdout.splitlines()[-1] == "slept 3"


def test_a_deadline_that_cannot_be_is_refused_and_its_offer_is_kept(live: Live, entry: str) -> None:
    refused = live.laxity("submit", entry, "--name", "hasty", "--deadline", "0.4s")
    assert refused.returncode == 3, refused.stdout + refused.stderr
    assert "laxity accept hasty" in refused.stdout

    accepted = live.laxity("accept", "hasty", "1")

    assert accepted.returncode == 0, accepted.stdout + accepted.stderr
    assert live.ended("hasty").kept is True


def test_whatif_answers_as_the_verdict_would_and_leaves_nothing(live: Live, entry: str) -> None:
    promised = live.laxity("whatif", entry, "--name", "asked", "--deadline", "2m")
    refused = live.json("whatif", entry, "--name", "asked", "--deadline", "0.1s")

    assert promised.returncode == 0, promised.stderr
    assert (refused["verdict"], refused["offers"][0]["kind"]) == ("refused", "deadline")
    assert live.laxity("show", "asked").returncode == 4


def test_a_job_is_explained_amended_and_cancelled(live: Live, entry: str) -> None:
    live.laxity(
        *("submit", entry, "--name", "long", "--deadline", "20m", "--epochs", "500"),
        *("--workers", "1"),
    )

    amended = live.laxity("amend", "long", "--deadline", "30m")
    explained = live.json("explain", "long")
    hasty = live.laxity("amend", "long", "--deadline", "1s")
    cancelled = live.laxity("cancel", "long")

    assert amended.returncode == 0, amended.stdout + amended.stderr
    assert "promised" in {row["decision"]["kind"] for row in explained["chain"]}
    assert hasty.returncode == 3
    assert cancelled.returncode == 0
    assert live.ended("long").state == "cancelled"


def test_the_same_key_attaches_and_another_job_of_the_name_is_refused(
    live: Live, entry: str
) -> None:
    same = ("submit", entry, "--name", "keyed", "--key", "commit-1", "--json")

    first, second = live.laxity(*same), live.laxity(*same)
    other = live.laxity("submit", entry, "--name", "keyed", "--key", "commit-2")

    assert json.loads(first.stdout)["uid"] == json.loads(second.stdout)["uid"]
    assert other.returncode == 2
    assert "keyed" in other.stderr


def test_a_bad_deadline_is_told_by_field(live: Live, entry: str) -> None:
    said = live.laxity("submit", entry, "--name", "bad", "--deadline", "soon")

    assert said.returncode == 2
    assert "deadline" in said.stderr


def test_lists_and_figures_are_there_for_people_and_machines(live: Live) -> None:
    listed = live.laxity("ls", "--all")
    cluster = live.json("cluster")
    decisions = live.json("decisions", "--limit", "3")

    assert listed.returncode == 0
    assert cluster["total_gpus"] == 2
    assert len(decisions["decisions"]) == 3
    assert live.laxity("cluster").returncode == 0
    assert live.laxity("decisions").returncode == 0


def test_a_running_job_is_released_and_taken_back(live: Live, entry: str) -> None:
    live.laxity("submit", entry, "--name", "alone", "--epochs", "2000", "--workers", "1")
    live.until("alone", lambda view: view.workers == 1)

    released = live.laxity("release", "alone")
    live.until("alone", lambda view: view.pinned)
    listed, shown = live.laxity("ls"), live.laxity("show", "alone")
    taken_back = live.laxity("release", "alone", "--undo")
    view = live.until("alone", lambda view: not view.pinned)
    unknown = live.laxity("release", "nobody")
    live.laxity("cancel", "alone")

    assert (released.returncode, taken_back.returncode) == (0, 0), released.stderr
    assert (view.state, view.workers) == ("running", 1)
    assert "running, pinned" in listed.stdout
    assert "running, pinned" in shown.stdout
    assert unknown.returncode == 4
    assert "nobody" in unknown.stderr


def test_everything_is_let_go(live: Live) -> None:
    released = live.laxity("release", "--all")

    assert released.returncode == 0, released.stderr
    assert released.stdout.startswith("released: ")
