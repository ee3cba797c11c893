"""Each library's own loop under a deadline: stopped, resumed and killed, it trains what it would have."""

import json
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from laxity.worker import script
from tests.support.job_workers import PATIENCE_S, JobWorkers, kill
from tests.support.training_service import Service

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parents[2] / "flows/examples/frameworks"
STOPPED = 143


@dataclass(frozen=True)
class Library:
    """The example of a library: how many epochs its job declares, and whether it stops inside one."""

    name: str
    epochs: int
    steps: int
    stops_anywhere: bool


LIBRARIES = [
    Library("transformers", 16, 128, stops_anywhere=True),
    Library("lightning", 8, 512, stops_anywhere=False),
    Library("keras", 8, 512, stops_anywhere=False),
    Library("xgboost", 10, 100, stops_anywhere=True),
    Library("lightgbm", 10, 100, stops_anywhere=True),
]
each_library = pytest.mark.parametrize(
    "library", [pytest.param(library, id=library.name) for library in LIBRARIES]
)


@dataclass
class Place:
    """A folder and a service for one job."""

    job_workers: JobWorkers
    service: Service
    environ: dict[str, str]

    def start(self) -> Any:
        return self.job_workers.start("train", environ=self.environ)

    def finish(self) -> Any:
        """Train to the end; the result."""
        assert self.start().wait(PATIENCE_S) == 0, self.job_workers.log()
        return self.job_workers.result()

    def stop_after(self, epoch: int) -> dict[str, Any]:
        """Stop it by order once this epoch is done; the report of what it has saved."""
        worker = self.start()
        self.service.until_reported("epoch", epoch=epoch)
        self.service.order(stop=True)
        parked = self.service.until_reported("parked")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE_S) == STOPPED
        self.service.order(stop=False)
        return parked

    def kill_after(self, epoch: int) -> None:
        worker = self.start()
        self.service.until_reported("saved", epoch=epoch)
        kill(worker)


@pytest.fixture
def places(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    opened: list[Place] = []

    def open_place(library: Library, **parameters: Any) -> Place:
        if find_spec(library.name) is None:
            pytest.skip(f"{library.name} is not installed")
        service, folder = Service(), tmp_path / str(len(opened))
        folder.mkdir()
        file = EXAMPLES / f"{library.name}_flow.py"
        job_workers = JobWorkers(folder, url=service.url, epochs=library.epochs, file=file)
        environ = {"LAXITY_PARAMETERS": json.dumps(parameters), "KERAS_BACKEND": "torch"}
        opened.append(Place(job_workers, service, environ))
        return opened[-1]

    yield open_place
    for place in opened:
        place.job_workers.close()
        place.service.close()


@each_library
def test_stopped_and_killed_run_ends_as_an_undisturbed_one(places: Any, library: Library) -> None:
    undisturbed = places(library).finish()
    place = places(library)

    parked = place.stop_after(library.epochs // 2)
    place.kill_after(library.epochs)
    result = place.finish()

    assert result == undisturbed
    assert undisturbed["steps"] == library.steps
    assert ("share" in parked) <= library.stops_anywhere
    epochs = [line["epoch"] for line in place.service.of("epoch") if not line.get("again")]
    assert epochs == list(range(1, library.epochs + 1))
    assert all(line["metrics"] for line in place.service.of("epoch")[:-1])


@each_library
def test_early_stop_of_the_library_finishes_early(places: Any, library: Library) -> None:
    place = places(library, patience=1)

    result = place.finish()

    assert 0 < result["steps"] < library.steps
    finished = place.service.of("finished")[0]
    assert 0 < finished["epochs_done"] < library.epochs


@pytest.mark.parametrize("name", ["keras", "xgboost"])
def test_library_that_trains_on_one_worker_refuses_several(places: Any, name: str) -> None:
    place = places(next(library for library in LIBRARIES if library.name == name))
    place.service.order(workers=2)

    workers = [
        place.job_workers.start("train", index=index, environ=place.environ) for index in (0, 1)
    ]

    assert all(worker.wait(PATIENCE_S) for worker in workers)
    assert "would train 2 models" in place.service.of("failed")[0]["error"]


def test_lightning_script_as_it_is_posts_its_progress(tmp_path: Path, service: Service) -> None:
    if find_spec("lightning") is None:
        pytest.skip("lightning is not installed")
    command = [sys.executable, str(EXAMPLES / "lightning_script.py")]
    job_workers = JobWorkers(tmp_path, url=service.url, epochs=100, file=Path(script.__file__))
    environ = {"LAXITY_PARAMETERS": json.dumps({"command": command})}

    code = job_workers.run("run_script", environ=environ)

    assert code == 0, job_workers.log()
    assert service.of("finished")[0]["epochs_done"] == 100
    assert job_workers.result()["progress_percent"] == 100.0
    assert job_workers.result()["loss"] > 0.0
