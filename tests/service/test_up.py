"""The real service on this machine: up, a real training, kill -9, up again, down, replay."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from laxity.api.client import Client
from laxity.worker.__main__ import _TRACKED_S
from laxity_scheduler.process.instance_dir import InstanceDir
from laxity_scheduler.process.tracking_links import tracking_lines
from tests.support.http_service import service
from tests.support.processes import run_command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PATIENCE_S = 120.0
UNKNOWN_USER = ("unshare", "--user", "--map-user=12345", "--map-group=12345")
TRAINING = """
import time
from pathlib import Path

import numpy as np

class Net:
    def __init__(self):
        self.w = np.zeros(2)

def train(training):
    net, hurry = Net(), Path(__file__).with_name("hurry")
    training.restore(net)
    for epoch in training.epochs():
        while epoch > 5 and not hurry.exists():
            time.sleep(0.02)
        net.w += 1
        training.log(loss=1.0)
    return float(net.w[0])
"""

NAMELESS = """
import pwd

def raise_unknown(uid):
    raise KeyError(f"getpwuid(): uid not found: {uid}")

pwd.getpwuid = raise_unknown
"""


def has_user_namespaces() -> bool:
    if shutil.which(UNKNOWN_USER[0]) is None:
        return False
    return not subprocess.run([*UNKNOWN_USER, "true"], capture_output=True, check=False).returncode


def laxity(
    home: Path, *arguments: str, ok: bool = True, folder: Path | None = None, tracking: str = "none"
) -> str:
    """Run a command on this home, in a folder; what it printed."""
    env = os.environ | {"LAXITY_HOME": str(home), "MLFLOW_TRACKING_URI": tracking}
    done = run_command(
        sys.executable, "-P", "-m", "laxity.cli.main", *arguments, env=env, cwd=folder
    )
    assert not ok or done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "work.py").write_text(TRAINING)
    place = tmp_path / "home"
    yield place
    laxity(place, "down", ok=False)


def client(home: Path) -> Client:
    said = json.loads((home / "service.json").read_text())
    return Client(said["url"], said["token"], patience_s=60.0)


def until(home: Path, job: str, so: Any, words: str) -> Any:
    give_up_at = time.monotonic() + PATIENCE_S
    view = client(home).job(job)
    while not so(view):
        assert time.monotonic() < give_up_at, f"{job} is never {words}: {view}"
        view = client(home).job(job, wait_s=2.0, seen=view.revision)
    return view


def hurry(home: Path) -> None:
    """Let the training go on after its fifth epoch, at which it waits for this."""
    (home.parent / "hurry").touch()


def submitted(home: Path, name: str, *more: str) -> None:
    laxity(
        home, "submit", str(home.parent / "work.py") + ":train", "--name", name,
        "--deadline", "10m", "--workers", "1", "--estimate", "0.3s", *more,
    )  # fmt: skip


def test_a_service_killed_in_the_middle_of_a_training_goes_on_and_nothing_is_lost(
    home: Path,
) -> None:
    up = laxity(home, "up", "--port", "0", "--slots", "1")
    again = laxity(home, "up", "--port", "0")
    submitted(home, "a", "--epochs", "40")
    promised = until(home, "a", lambda view: view.epochs_done >= 3, "training")
    running = InstanceDir(home).running_service()
    assert running is not None
    os.kill(running.pid, signal.SIGKILL)
    laxity(home, "up", "--port", "0", "--slots", "1")
    hurry(home)
    ended = until(home, "a", lambda view: view.ended, "ended")
    replayed = laxity(home, "replay")
    explained = json.loads(laxity(home, "explain", "a", "--json"))
    down = laxity(home, "down")
    assert up.startswith("up: http://127.0.0.1:")
    assert "mlflow ui" not in up  # none
    assert again.startswith("already up: http://127.0.0.1:")
    assert "its options stay as they are" in again  # it was told a port
    assert (ended.state, ended.raw["outcome"], ended.result) == ("finished", "kept", 40.0)
    assert ended.epochs_done == 40
    assert ended.deadline_at == promised.deadline_at
    assert ended.preemptions == 0
    assert "byte for byte" in replayed
    assert [entry["decision"]["kind"] for entry in explained["chain"]][:2] == ["promised", "admit"]
    assert down.startswith("down")
    assert "no service" in laxity(home, "down")


def test_down_stops_the_workers_and_the_next_up_resumes_them(home: Path) -> None:
    laxity(home, "up", "--port", "0", "--slots", "1")
    submitted(home, "a", "--epochs", "60")
    until(home, "a", lambda view: view.epochs_done >= 3, "training")
    down = laxity(home, "down")
    laxity(home, "up", "--port", "0", "--slots", "1")
    hurry(home)
    ended = until(home, "a", lambda view: view.ended, "ended")
    assert open_to_others(home) == []
    assert "1 worker stopped" in down
    assert (ended.state, ended.result, ended.epochs_done) == ("finished", 60.0, 60)


def test_a_user_without_a_name_and_a_home_folder_trains(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(NAMELESS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.delenv("HOME")

    laxity(home, "up", "--port", "0", "--slots", "1")
    submitted(home, "a")
    hurry(home)

    assert until(home, "a", lambda view: view.ended, "ended").state == "finished"


@pytest.mark.skipif(not has_user_namespaces(), reason="this user may make no user namespaces")
def test_a_user_without_an_account_is_served_where_laxity_home_is_set(home: Path) -> None:
    module = [sys.executable, "-P", "-m", "laxity.cli.main"]
    environ = {"PATH": os.environ["PATH"], "MLFLOW_TRACKING_URI": "none"}

    def run(*words: str, **more: str) -> "subprocess.CompletedProcess[str]":
        command, env = [*UNKNOWN_USER, *module, *words], environ | more
        return run_command(*command, env=env, cwd=home.parent)

    refused = run("up", "--port", "0")
    begun = run("up", "--port", "0", "--slots", "1", LAXITY_HOME=str(home))

    assert refused.stderr.splitlines() == [
        "error: home folder: this user has none; set LAXITY_HOME to a folder"
    ]
    assert begun.returncode == 0, begun.stderr
    submitted(home, "a")
    hurry(home)
    assert until(home, "a", lambda view: view.ended, "ended").state == "finished"
    assert run("down", LAXITY_HOME=str(home)).returncode == 0


def open_to_others(home: Path) -> list[str]:
    """What of the service others than its owner may touch, by modes alone: sockets, too.

    Files of a training are its user's, made with the umask that this user has.
    """
    ours = [home, *(one for one in home.rglob("*") if "checkpoints" not in one.parts[:-3])]
    return [str(one) for one in ours if one.lstat().st_mode & 0o077 and not one.is_symlink()]


def test_a_service_that_cannot_start_says_why(home: Path) -> None:
    said = laxity(home, "up", "--port", "0", "--policy", "astrology", ok=False)
    assert "unknown policy 'astrology'" in said


def test_nothing_is_imported_from_the_folder_where_up_is_typed(home: Path) -> None:
    for name in ("token", "queue", "random", "orjson"):
        (home.parent / f"{name}.py").write_text("raise SystemExit('imported from here')")
    up = laxity(home, "up", "--port", "0", "--slots", "1", folder=home.parent)
    assert up.startswith("up: http://127.0.0.1:")
    assert client(home).jobs() == []


def test_a_full_disk_is_said_before_anything_is_started(home: Path) -> None:
    home.mkdir()
    (home / "service.log").symlink_to("/dev/full")
    said = laxity(home, "up", "--port", "0", ok=False)
    assert f"{home}/service.log cannot be written: No space left on device" in said


def test_what_an_earlier_start_said_is_not_told_again(home: Path) -> None:
    laxity(home, "up", "--port", "0", "--policy", "astrology", ok=False)
    said = laxity(home, "up", "--port", "0", "--policy", "alchemy", ok=False)
    assert "unknown policy 'alchemy'" in said
    assert "astrology" not in said


def test_beyond_loopback_a_token_is_made_kept_private_and_asked_for(home: Path) -> None:
    everywhere = "0.0.0.0"  # noqa: S104 - that is what is tried
    laxity(home, "up", "--host", everywhere, "--port", "0", "--slots", "1")
    said = json.loads((home / "service.json").read_text())
    nobody = Client(said["url"], "", patience_s=0.0)
    with pytest.raises(Exception, match="token"):
        nobody.jobs()
    assert client(home).jobs() == []
    assert (home / "tokens").stat().st_mode & 0o077 == 0
    submitted(home, "a", "--epochs", "3")
    assert until(home, "a", lambda view: view.ended, "ended").result == 3.0


def test_up_and_the_job_say_that_nobody_tracks_and_the_job_ends_in_time(home: Path) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(64)
        uri = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        up = laxity(home, "up", "--port", "0", "--slots", "1", tracking=uri)
        submitted(home, "a", "--epochs", "40")
        until(home, "a", lambda view: bool(view.untracked), "untracked")
        shown = laxity(home, "show", "a")
        hurry(home)
        until(home, "a", lambda view: view.epochs_done == 40, "trained")
        trained_at = time.monotonic()
        ended = until(home, "a", lambda view: view.ended, "ended")
        took_s = time.monotonic() - trained_at
    assert f"warning: MLflow at {uri} does not answer: timed out; jobs run" in up
    assert "not tracked" in shown
    assert ended.raw["outcome"] == "kept"
    assert took_s < _TRACKED_S, "as long as an MLflow that answers is waited for"


def test_up_names_the_page_of_a_local_store(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/mlflow.db"

    lines = [*tracking_lines(store)]

    page = "http://127.0.0.1:5000/#/experiments/1/runs?workflowType=machine_learning"
    small = "MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false mlflow ui --workers 1"
    assert lines == [f"runs: {small} --backend-store-uri {store}", f"      {page}"]


def test_up_asks_a_server_for_the_experiment_it_will_show() -> None:
    with service() as mlflow:
        experiment = {"experiment": {"experiment_id": "7"}}
        mlflow.answers["GET /api/2.0/mlflow/experiments/get-by-name"] = 200, experiment
        (line,) = tracking_lines(mlflow.url)
    assert line == f"runs: {mlflow.url}/#/experiments/7/runs?workflowType=machine_learning"
