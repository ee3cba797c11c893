"""`laxity profile` trains a few epochs at each width as ordinary jobs, and says what they tell."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from laxity import names
from laxity.exits import CommandError
from laxity_profiler.commands import register
from tests.prediction.builders import history_in, trained

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


class Trainer(ThreadingHTTPServer):
    """Answers like the service: a job is running when submitted and finished when asked after."""

    def __init__(self, folder: Path, *, state: str) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.history = history_in(folder)
        self.state = state
        self.jobs: dict[str, dict[str, Any]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def view(self, name: str, state: str) -> dict[str, Any]:
        return {"id": f"default/{name}", "uid": name, "state": state, "revision": state}

    def train(self, name: str) -> None:
        said = self.jobs[name]["metadata"]["annotations"]
        width = int(said[names.WIDTHS])
        epochs = [9.0] + [8.0 / width] * (int(said[names.EPOCHS]) - 1)
        trained(self.history, name, epoch_s=epochs, width=width, samples=900)


class Answering(BaseHTTPRequestHandler):
    server: Trainer

    def do_POST(self) -> None:
        manifest = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = manifest["metadata"]["name"]
        self.server.jobs[name] = manifest
        self._answer(201, self.server.view(name, "running"))

    def do_GET(self) -> None:
        name = self.path.partition("?")[0].rpartition("/")[2]
        self.server.train(name)
        self._answer(200, self.server.view(name, self.server.state))

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def trainer(folder: Path, *, state: str = "finished") -> Iterator[Trainer]:
    with Trainer(folder, state=state) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def profile(home: Path, url: str, *words: str) -> Result:
    app = typer.Typer()
    app.callback()(lambda: None)
    register(app)
    (home / "job.yaml").write_text(FILE)
    where = {"LAXITY_HOME": str(home), "LAXITY_URL": url, "LAXITY_TOKEN": "", "COLUMNS": "120"}
    source = () if words and ":" in words[0] else (str(home / "job.yaml"),)
    return CliRunner().invoke(app, ["profile", *source, *words], env=where)


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
    assert {row["source"] for row in said["widths"]} == {"history"}


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


def test_a_person_sees_the_curve(tmp_path: Path) -> None:
    with trainer(tmp_path) as service:
        shown = profile(tmp_path, service.url, "--workers", "1,2").output

    assert "mlp: 3 epochs on 2" in shown
    assert "\u2588" * 12 in shown
    assert "8.0s" in shown


def test_a_probe_that_fails_is_an_error_with_its_reason(tmp_path: Path) -> None:
    with trainer(tmp_path, state="failed") as service:
        error = profile(tmp_path, service.url, "--workers", "1").exception

    assert isinstance(error, CommandError)
    assert "is failed" in str(error)
