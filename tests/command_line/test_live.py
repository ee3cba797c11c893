"""The command line against a real service: what the two agree on is tried, not assumed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.local_service import LocalService, local_service

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


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    home = tmp_path_factory.mktemp("live")
    (home / "naps.py").write_text(FLOW)
    with local_service(home) as started:
        yield started


@pytest.fixture
def entry(live: LocalService) -> str:
    return f"{live.home / 'naps.py'}:nap"


def test_a_function_is_submitted_promised_trained_and_kept(live: LocalService, entry: str) -> None:
    submitted = live.laxity("submit", entry, "--name", "kept", "--deadline", "2m", "--follow")

    assert submitted.returncode == 0, submitted.stderr
    assert "promised" in submitted.stdout
    shown = live.json("show", "kept")
    assert (shown["state"], shown["result"], shown["epochs_done"]) == ("finished", 3, 3)
    assert live.laxity("logs", "kept").stdout.splitlines()[-1] == "slept 3"


def test_a_deadline_that_cannot_be_is_refused_and_its_offer_is_kept(
    live: LocalService, entry: str
) -> None:
    refused = live.laxity("submit", entry, "--name", "hasty", "--deadline", "0.4s")
    assert refused.returncode == 3, refused.stdout + refused.stderr
    assert "laxity accept hasty" in refused.stdout

    accepted = live.laxity("accept", "hasty", "1")

    assert accepted.returncode == 0, accepted.stdout + accepted.stderr
    assert live.ended("hasty").kept is True


def test_whatif_answers_as_the_verdict_would_and_leaves_nothing(
    live: LocalService, entry: str
) -> None:
    promised = live.laxity("whatif", entry, "--name", "asked", "--deadline", "2m")
    refused = live.json("whatif", entry, "--name", "asked", "--deadline", "0.1s")

    assert promised.returncode == 0, promised.stderr
    assert (refused["verdict"], refused["offers"][0]["kind"]) == ("refused", "deadline")
    assert live.laxity("show", "asked").returncode == 4


def test_a_job_is_explained_amended_and_cancelled(live: LocalService, entry: str) -> None:
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
    live: LocalService, entry: str
) -> None:
    same = ("submit", entry, "--name", "keyed", "--key", "commit-1", "--json")

    first, second = live.laxity(*same), live.laxity(*same)
    other = live.laxity("submit", entry, "--name", "keyed", "--key", "commit-2")

    assert json.loads(first.stdout)["uid"] == json.loads(second.stdout)["uid"]
    assert other.returncode == 2
    assert "keyed" in other.stderr


def test_lists_and_figures_are_there_for_people_and_machines(live: LocalService) -> None:
    listed = live.laxity("ls", "--all")
    cluster = live.json("cluster")
    decisions = live.json("decisions", "--limit", "3")

    assert listed.returncode == 0
    assert cluster["total_gpus"] == 2
    assert len(decisions["decisions"]) == 3
    assert live.laxity("cluster").returncode == 0
    assert live.laxity("decisions").returncode == 0


def test_a_running_job_is_released_and_taken_back(live: LocalService, entry: str) -> None:
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


def test_everything_is_let_go(live: LocalService) -> None:
    released = live.laxity("release", "--all")

    assert released.returncode == 0, released.stderr
    assert released.stdout.startswith("released: ")


def test_parameters_arrive_as_their_types_and_a_result_of_types_comes_back(
    live: LocalService,
) -> None:
    typed = f"{Path(__file__).parents[1] / 'support/programs/typed_flow.py'}:train"
    optimizer = '{"lr": 0.25, "schedule": "fast"}'

    submitted = live.laxity(
        *("submit", typed, "--name", "typed", "--follow"),
        *("-p", f"optimizer={optimizer}", "-p", "out=runs/1", "-p", 'before={"loss": 1}'),
    )

    assert submitted.returncode == 0, submitted.stderr
    result = live.json("show", "typed")["result"]
    kinds = ["Optimizer", "NoneType", "PosixPath", "Schedule", "Score", "frozenset"]
    assert result["types"] == kinds
    assert result["score"]["of"] == {"lr": 0.25, "schedule": "fast", "folders": []}
