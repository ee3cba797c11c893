"""Code for torchrun on laxity's workers: each knows its rank before it starts, and the width changes."""

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.job_workers import PATIENCE_S, JobWorkers, kill, narrow_for_an_epoch
from tests.support.training_service import Service

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed"),
]
FILE = Path(__file__).parents[1] / "support/programs/launched_trainings.py"
LAUNCHED = {"LAXITY_LAUNCHER": "torch"}
KINDS = [
    "with_ddp",
    pytest.param(
        "with_accelerate",
        marks=pytest.mark.skipif(
            find_spec("accelerate") is None, reason="Accelerate is not installed"
        ),
    ),
    pytest.param(
        "with_lightning",
        marks=pytest.mark.skipif(
            find_spec("lightning") is None, reason="Lightning is not installed"
        ),
    ),
]


class Pair(NamedTuple):
    """Losses of one worker, of two, and what the two left behind."""

    function: str
    alone: list[float]
    together: list[float]
    job_workers: JobWorkers


@pytest.fixture
def two() -> Iterator[Service]:
    service = Service(workers=2)
    yield service
    service.close()


def run(folder: Path, function: str, *, workers: int) -> tuple[list[float], JobWorkers]:
    """Losses of four epochs on so many workers, from one checkpoint on."""
    folder.mkdir()
    service = Service(workers=workers)
    job_workers = JobWorkers(folder, url=service.url, file=FILE)
    job_workers.open_gate()
    started = [
        job_workers.start(function, index=index, environ=LAUNCHED) for index in range(workers)
    ]
    codes = [worker.wait(PATIENCE_S) for worker in started]
    service.close()
    assert codes == [0] * workers, job_workers.log() + job_workers.log(workers - 1)
    return [line["metrics"]["loss"] for line in service.of("epoch")], job_workers


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A training on one worker, and the same on two."""
    folder = tmp_path_factory.mktemp("pair")
    alone, _ = run(folder / "one", request.param, workers=1)
    together, job_workers = run(folder / "two", request.param, workers=2)
    return Pair(request.param, alone, together, job_workers)


def test_two_workers_are_one_group_that_trains_one_model(pair: Pair) -> None:
    assert pair.together == pytest.approx(pair.alone, rel=1e-5)
    assert pair.job_workers.result()["world"] == 2
    assert [line["width"] for line in pair.job_workers.reports("epoch")] == [2] * 4
    ends = [json.loads((pair.job_workers.gates / f"end-{rank}").read_text()) for rank in range(2)]
    assert ends[0] == ends[1]


def test_a_worker_knows_its_rank_as_its_file_is_imported(pair: Pair) -> None:
    launched = {note["rank"]: note["launched"] for note in pair.job_workers.notes("began", epoch=1)}

    common = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    assert launched == {rank: {"RANK": str(rank), **common} for rank in range(2)}


def test_another_width_begins_anew_from_the_checkpoint(
    two: Service, tmp_path: Path, pair: Pair
) -> None:
    job_workers = JobWorkers(tmp_path, url=two.url, file=FILE)
    job_workers.open_gate(1)
    (job_workers.gates / "loads").touch()
    workers = [
        job_workers.start(pair.function, index=index, environ=LAUNCHED) for index in range(2)
    ]

    narrow_for_an_epoch(job_workers, two)
    codes = [worker.wait(PATIENCE_S) for worker in workers]

    assert codes == [0, 0], job_workers.log() + job_workers.log(1)
    assert [line["width"] for line in two.of("epoch")] == [2, 2, 1, 2]
    losses = [line["metrics"]["loss"] for line in two.of("epoch")]
    assert losses == pytest.approx(pair.alone, rel=1e-5)
    pids = {note["pid"] for note in job_workers.notes("began", rank=0)}
    assert pids == {workers[0].pid}, "the worker keeps its place"
    assert len(two.of("started")) == 1
    children = {note["child"] for note in job_workers.notes("began") if note["child"]}
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]
    job_workers.close()


def test_a_killed_worker_comes_back_into_a_new_group(two: Service, tmp_path: Path) -> None:
    job_workers = JobWorkers(tmp_path, url=two.url, file=FILE)
    job_workers.open_gate(2)
    leader, lost = [
        job_workers.start("with_ddp", index=index, environ=LAUNCHED) for index in range(2)
    ]
    job_workers.until_noted("began", epoch=3, times=2)

    kill(lost)
    back = job_workers.start("with_ddp", index=1, environ=LAUNCHED)
    job_workers.open_gate()

    assert [leader.wait(PATIENCE_S), back.wait(PATIENCE_S)] == [0, 0], (
        job_workers.log() + job_workers.log(1)
    )
    assert [line["epoch"] for line in two.of("epoch")] == [1, 2, 3, 4]
    assert job_workers.result()["world"] == 2
    job_workers.close()


def test_a_worker_that_is_not_needed_ends_with_the_training(tmp_path: Path) -> None:
    service = Service(workers=1)
    job_workers = JobWorkers(tmp_path, url=service.url, file=FILE)
    job_workers.open_gate()
    spare = job_workers.start("with_ddp", index=1, environ=LAUNCHED)
    leader = job_workers.start("with_ddp", environ=LAUNCHED)

    assert [leader.wait(PATIENCE_S), spare.wait(PATIENCE_S)] == [0, 0]
    service.close()
    assert job_workers.notes("began", rank=1) == []
    job_workers.close()
