"""A real service learns from its own journal, is given a bad model, catches it, and is rolled back."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from laxity.api.client import Client
from laxity_profiler.registry.registered_files import ModelFile, register_file
from laxity_scheduler.process.daemon import is_ready
from tests.learn.test_policy_in_force import save
from tests.support.mlflow_store import copy_store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PATIENCE_S = 90.0
AFTERNOON = Path(__file__).parents[2] / "flows" / "examples" / "afternoon.py"
# The service as it is, but for two clocks: slots of the guard and questions about aliases are short.
SERVE = """
from laxity.cli.main import main
from laxity_scheduler.process import open_policies
from laxity_scheduler.service import reward_guard
reward_guard.SHORTEST_SLOT_S, open_policies.ALIAS_S = 0.3, 1.0
main()
"""


def environment(home: Path) -> dict[str, str]:
    place = f"sqlite:///{home / 'mlflow.db'}"
    return os.environ | {"LAXITY_HOME": str(home), "MLFLOW_TRACKING_URI": place}


def laxity(home: Path, *arguments: str) -> str:
    """Run a command on this home; what it printed."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "laxity.cli.main", *arguments],
        capture_output=True,
        text=True,
        env=environment(home),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def serving(home: Path, *options: str) -> Iterator[Client]:
    """A service on this home, and who asks it."""
    words = ["serve", "--port", "0", "--slots", "4", *options]
    with (home / "log").open("a") as log:
        service = subprocess.Popen(
            [sys.executable, "-P", "-c", SERVE, *words], env=environment(home), stderr=log
        )
    try:
        until((home / "service.json").exists, "an address")
        client = client_of(home)
        until(lambda: is_ready(client.url), "the service is ready")
        yield client
    finally:
        service.terminate()
        service.wait(30.0)
        laxity(home, "down")  # its workers


def until(holds: Callable[[], object], words: str) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up_at, f"never: {words}"
        time.sleep(0.2)


def submit(home: Path, function: str, name: str, epochs: int) -> None:
    entry = f"{AFTERNOON}:{function}"
    laxity(home, "submit", entry, "--name", name, "--epochs", str(epochs), "-p", "epoch_s=0.5")


def has_ended(client: Client) -> bool:
    return all(job.ended for job in client.jobs())


def client_of(home: Path) -> Client:
    address = json.loads((home / "service.json").read_text())
    return Client(address["url"], address["token"], patience_s=60.0)


def decides(client: Client) -> str:
    return str(client.cluster()["policy"])


def test_a_service_learns_from_its_journal_catches_a_bad_model_and_is_rolled_back(
    blank_mlflow: Path, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    home = tmp_path / "home"
    home.mkdir()
    copy_store(blank_mlflow, home)
    with serving(home, "--policy", "optimus") as client:
        for number in range(6):
            function = "train_scaling" if number % 2 else "train_stalling"
            submit(home, function, f"a-{number}", 20)
        until(lambda: has_ended(client), "the afternoon ends")
    words = ("--journal", str(home), "--out", str(tmp_path / "mine.npz"), "--register", "widths")
    figures = json.loads(laxity(home, "train", "policy", *words, "--updates", "200", "--json"))
    assert figures["journal_choices"] >= 20
    assert figures["held_out_right"] > 0.6
    with serving(home, "--policy", "models:/widths@champion") as client:
        assert decides(client) == "optimus_with_promises"
        assert "champion not found" in " ".join(laxity(home, "cluster").split())
        for name in ("b-1", "b-2"):
            submit(home, "train_scaling", name, 2_000)
        laxity(home, "train", "promote", "widths", "1")
        until(lambda: decides(client) == "models:/widths/1", "version 1 decides")
        bad = ModelFile("widths", save(tmp_path / "bad.npz", lazy=True), "", alias="challenger")
        register_file(f"sqlite:///{home / 'mlflow.db'}", bad)
        laxity(home, "train", "promote", "widths", "2")
        until(lambda: decides(client) == "models:/widths/2", "version 2 decides")
        until(lambda: decides(client) == "optimus_with_promises", "it is caught")
        assert "models:/widths/2 does not decide: its measured reward" in " ".join(
            laxity(home, "cluster").split()
        )
        laxity(home, "train", "promote", "widths", "1")
        until(lambda: decides(client) == "models:/widths/1", "it is rolled back")
        assert client.cluster()["learned"]["fallback"] == ""
    assert "every plan is the same, byte for byte" in laxity(home, "replay")
