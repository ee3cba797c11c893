"""`laxity profile` trains a few epochs at each width as ordinary jobs, and says what they tell."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from typer.testing import Result

from laxity import names
from laxity.api.job_view import JobView
from laxity.cli.exit_codes import CommandError
from laxity_profiler.cli.commands import register
from laxity_profiler.cli.profiling import run
from laxity_profiler.learning.profile_fit import ProfiledRun, fit_profile
from tests.support.command_line import invoke
from tests.support.http_service import Answer, Asked, JsonServer
from tests.support.runs import OpenHistory, history_in, trained

if TYPE_CHECKING:
    from laxity.api.client import Client

FILE = """
apiVersion: batch/v1
kind: Job
metadata:
  name: digits
  labels: {laxity.dev/managed: "true"}
  annotations: {laxity.dev/model: mlp, laxity.dev/deadline: 10m, laxity.dev/samples: "900"}
spec:
  template: {spec: {containers: [{name: train, image: x}]}}
"""


class Trainer:
    """Answers like the service: a job is running when submitted and finished when asked after."""

    def __init__(self, folder: Path, *, state: str) -> None:
        self.history = history_in(folder)
        self.state = state
        self.jobs: dict[str, dict[str, Any]] = {}
        self.server = JsonServer(self.answer)
        self.url = self.server.url

    def answer(self, asked: Asked) -> Answer:
        state, name = "running", asked.path.partition("?")[0].rpartition("/")[2]
        if asked.method == "POST":
            name = asked.body["metadata"]["name"]
            self.jobs[name] = asked.body
        else:
            self.train(name)
            state = self.state
        return 200, {"id": f"default/{name}", "uid": name, "state": state, "revision": state}

    def train(self, name: str) -> None:
        said = self.jobs[name]["metadata"]["annotations"]
        width = int(said[names.WIDTHS])
        batch = int(said.get(names.BATCH_SIZE, 0)) or None
        epoch_s = 8.0 / width if batch is None else epoch_of(batch, width)
        epochs = [9.0] + [epoch_s] * (int(said[names.EPOCHS]) - 1)
        model = said[names.MODEL]
        trained(self.history, name, model, epoch_s=epochs, width=width, batch_size=batch)


def epoch_of(batch: int, width: int) -> float:
    """900 samples; a step costs a fixed part, its share of the batch, and a little per doubling."""
    return 900 / batch * (0.01 + 0.002 * batch / width + 0.003 * math.log2(width))


class Interrupted:
    """A client whose user presses Ctrl-C while it waits."""

    def __init__(self) -> None:
        self.cancelled: list[str] = []

    def submit(self, manifest: Any) -> JobView:
        return JobView(id=f"default/{manifest['metadata']['name']}", state="running")

    def job(self, *_: Any, **__: Any) -> JobView:
        raise KeyboardInterrupt

    def cancel(self, job_id: str) -> None:
        self.cancelled.append(job_id)


def test_who_interrupts_profiling_leaves_no_probe_behind() -> None:
    client = Interrupted()

    with pytest.raises(KeyboardInterrupt):
        run(cast("Client", client), {"metadata": {"name": "probe"}})

    assert client.cancelled == ["default/probe"]


@contextmanager
def trainer(folder: Path, *, state: str = "finished") -> Iterator[Trainer]:
    made = Trainer(folder, state=state)
    try:
        yield made
    finally:
        made.server.close()
        made.history.engine.dispose()


def profile(home: Path, url: str, *words: str) -> Result:
    (home / "job.yaml").write_text(FILE)
    where = {"LAXITY_HOME": str(home), "LAXITY_URL": url, "LAXITY_TOKEN": "", "COLUMNS": "120"}
    source = () if words and ":" in words[0] else (str(home / "job.yaml"),)
    return invoke(["profile", *source, *words], register, env=where)


def test_each_width_is_trained_once_without_a_deadline(tmp_path: Path) -> None:
    with trainer(tmp_path) as service:
        answer = profile(tmp_path, service.url, "--workers", "1,2", "--epochs", "4", "--json")

    jobs = [job["metadata"] for job in service.jobs.values()]
    assert [job["annotations"][names.WIDTHS] for job in jobs] == ["1", "2"]
    assert {job["annotations"][names.CLASS] for job in jobs} == {"best_effort"}
    assert all(names.DEADLINE not in job["annotations"] for job in jobs)
    assert all(job["name"].startswith("digits-w") for job in jobs)
    said = json.loads(answer.stdout.splitlines()[-1])
    assert [row["epoch"]["p50_s"] for row in said["widths"]] == pytest.approx([8.0, 4.0])
    assert all(row["profiled"] for row in said["widths"])
    assert said["left_out_error"] is None


def test_a_function_is_profiled_under_the_name_that_its_workers_know(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("def train(training, hidden=8):\n    return hidden\n")
    with trainer(tmp_path) as service:
        words = (f"{tmp_path}/code.py:train", "--workers", "2", "-p", "hidden=16")
        profile(tmp_path, service.url, *words)

    ((name, job),) = service.jobs.items()
    (container,) = job["spec"]["template"]["spec"]["containers"]
    env = {row["name"]: row.get("value") for row in container["env"]}
    assert env.get(names.ENV_JOB, f"default/{name}") == f"default/{name}"
    assert json.loads(job["metadata"]["annotations"][names.PARAMETERS]) == {"hidden": 16}
    assert name.startswith("train-")
    assert "-w2-" in name


TRAIN = "def train(training, batch_size=128, hidden=8):\n    return hidden\n"


def test_a_function_with_a_batch_size_is_profiled_in_four_corners(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(TRAIN)
    with trainer(tmp_path) as service:
        words = (f"{tmp_path}/code.py:train", "--workers", "1..4", "--batch-sizes", "64,256,1024")
        answer = profile(tmp_path, service.url, *words, "--json")

    made = [job["metadata"]["annotations"] for job in service.jobs.values()]
    corners = [(int(one[names.BATCH_SIZE]), int(one[names.WIDTHS])) for one in made]
    assert corners == [(64, 1), (1024, 1), (64, 4), (1024, 4)]
    assert [json.loads(one[names.PARAMETERS])["batch_size"] for one in made] == [64, 1024, 64, 1024]
    said = json.loads(answer.stdout)
    rows = {(row["batch_size"], row["workers"]): row for row in said["widths"]}
    assert len(rows) == 3 * 4
    assert sum(row["profiled"] for row in rows.values()) == 4
    for (batch, width), row in rows.items():
        assert row["epoch"]["p50_s"] == pytest.approx(epoch_of(batch, width), rel=0.08)
        assert row["epoch"]["p10_s"] < row["epoch"]["p50_s"] < row["epoch"]["p90_s"]
    assert 0.0 < said["left_out_error"] < 1.0


def test_runs_that_do_not_fit_together_make_every_interval_wide() -> None:
    times = {(64, 1): 8.0, (256, 1): 7.0, (64, 4): 0.7, (256, 4): 7.0}
    sound = {point: epoch_of(*point) for point in times}

    wild, calm = (
        fit_profile(
            [ProfiledRun(width, batch, seconds, 2) for (batch, width), seconds in given.items()],
            (1, 2, 4),
            (64, 256),
            gpus_per_node=8,
        )
        for given in (times, sound)
    )

    assert min(point.p90_s / point.p50_s for point in wild.points) > 1.5
    assert max(point.p90_s / point.p50_s for point in calm.points) < 1.2


def test_without_batch_sizes_its_own_and_half_of_it_are_tried(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(TRAIN)
    with trainer(tmp_path) as service:
        words = (f"{tmp_path}/code.py:train", "--workers", "1,2", "-p", "batch_size=96")
        shown = profile(tmp_path, service.url, *words).output

    sizes = {job["metadata"]["annotations"][names.BATCH_SIZE] for job in service.jobs.values()}
    assert (sizes, len(service.jobs)) == ({"48", "96"}, 4)
    assert "batch 48 (1 of 4)" in shown
    assert "each run predicted from the others is off by" in shown


def test_of_many_widths_four_are_trained(tmp_path: Path) -> None:
    with trainer(tmp_path) as service:
        answer = profile(tmp_path, service.url, "--workers", "1..8", "--json")

    widths = [int(job["metadata"]["annotations"][names.WIDTHS]) for job in service.jobs.values()]
    assert widths == [1, 2, 4, 8]
    rows = json.loads(answer.stdout)["widths"]
    assert [row["workers"] for row in rows] == list(range(1, 9))
    assert [row["epoch"]["p50_s"] for row in rows] == pytest.approx([8.0 / w for w in range(1, 9)])


def test_the_curve_is_drawn_where_it_was_asked_for(tmp_path: Path) -> None:
    with trainer(tmp_path) as service:
        answer = profile(tmp_path, service.url, "--workers", "1,2,4", "--plot", f"{tmp_path}/c.png")

    assert answer.exit_code == 0
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "c.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(
            ("--batch-sizes", "32,64"), "has no parameter batch_size", id="a file of Jobs"
        ),
        pytest.param(("--batch-sizes", "32,many"), "such as 64,256", id="no number"),
        pytest.param(("--batch-sizes", "0"), "from 1 up", id="no samples"),
        pytest.param(
            ("--plot", "/no/such/folder/c.png"), "there is no folder", id="nowhere to draw"
        ),
        pytest.param(("--workers", "4..1"), "4..1", id="no width"),
    ],
)
def test_what_cannot_be_profiled_is_wrong_usage(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    with trainer(tmp_path) as service:
        error = profile(tmp_path, service.url, *words).exception

    assert isinstance(error, CommandError)
    assert (error.code, said in str(error)) == (2, True)
    assert service.jobs == {}


@pytest.mark.parametrize("sizes", ["x", "0", "-4", "64,", "1e3", "9" * 5000])
def test_a_batch_size_that_is_none_is_said_with_what_to_write(sizes: str, tmp_path: Path) -> None:
    error = profile(tmp_path, "http://127.0.0.1:9", "--batch-sizes", sizes).exception

    assert isinstance(error, CommandError)
    assert error.code == 2
    assert "such as 64,256" in str(error)


def test_epochs_that_another_store_has_are_missed_with_words(
    tmp_path: Path, open_history: OpenHistory
) -> None:
    open_history(tmp_path / "other")
    with trainer(tmp_path) as service:
        elsewhere = f"sqlite:///{tmp_path}/other/laxity.db"
        error = profile(tmp_path, service.url, "--workers", "1", "--store", elsewhere).exception

    assert isinstance(error, CommandError)
    assert "no epochs of mlp on 1 are in the store" in str(error)


def test_a_store_that_is_not_there_is_missed_before_anything_is_trained(tmp_path: Path) -> None:
    with trainer(tmp_path) as service:
        elsewhere = f"sqlite:///{tmp_path}/other.db"
        error = profile(tmp_path, service.url, "--workers", "1", "--store", elsewhere).exception

    assert isinstance(error, CommandError)
    assert "there is no history at" in str(error)
    assert service.jobs == {}


def test_a_person_sees_the_curve(tmp_path: Path) -> None:
    with trainer(tmp_path) as service:
        shown = profile(tmp_path, service.url, "--workers", "1,2").output

    assert "mlp: 3 epochs on 2 (2 of 2)" in shown
    assert "\u2588" * 12 in shown
    assert "8.0s" in shown


def test_a_probe_that_fails_is_an_error_with_its_reason(tmp_path: Path) -> None:
    with trainer(tmp_path, state="failed") as service:
        error = profile(tmp_path, service.url, "--workers", "1").exception

    assert isinstance(error, CommandError)
    assert "is failed" in str(error)
