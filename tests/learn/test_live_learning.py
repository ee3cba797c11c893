"""A real service learns from its own journal, is given a bad model, catches it, and is rolled back."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from laxity_profiler.registry.registered_files import ModelFile, register_file
from tests.learn.test_policy_in_force import save
from tests.support.local_service import LocalService, local_service
from tests.support.mlflow_store import copy_store
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

AFTERNOON = Path(__file__).parents[2] / "flows" / "examples" / "afternoon.py"
# The service as it is, but for two clocks: slots of the guard and questions about aliases are short.
SERVE = """
from laxity.cli.main import main
from laxity_scheduler.process import open_policies
from laxity_scheduler.service import reward_guard
reward_guard.SHORTEST_SLOT_S, open_policies.ALIAS_S = 0.3, 1.0
main()
"""


@contextmanager
def serving(home: Path, *options: str) -> Iterator[LocalService]:
    """A service on this home, with this home's MLflow."""
    given = {"tracking_uri": f"sqlite:///{home / 'mlflow.db'}", "program": ("-P", "-c", SERVE)}
    with local_service(home, slots=4, options=options, **given) as live:
        yield live


def run(live: LocalService, *arguments: str) -> str:
    """What a command printed that went well."""
    done = live.laxity(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def submit(live: LocalService, function: str, name: str, epochs: int) -> None:
    entry = f"{AFTERNOON}:{function}"
    run(live, "submit", entry, "--name", name, "--epochs", str(epochs), "-p", "epoch_s=0.5")


def until_decides(live: LocalService, policy: str) -> None:
    until(lambda: live.client.cluster()["policy"] == policy, f"{policy} decides", limit_s=90)


def test_a_service_learns_from_its_journal_catches_a_bad_model_and_is_rolled_back(
    blank_mlflow: Path, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    home = tmp_path / "home"
    home.mkdir()
    copy_store(blank_mlflow, home)
    with serving(home, "--policy", "optimus") as live:
        for number in range(6):
            function = "train_scaling" if number % 2 else "train_stalling"
            submit(live, function, f"a-{number}", 20)
        for number in range(6):
            live.ended(f"a-{number}")
    words = ("--journal", str(home), "--out", str(tmp_path / "mine.npz"), "--register", "widths")
    figures = json.loads(run(live, "train", "policy", *words, "--updates", "200", "--json"))
    assert figures["journal_choices"] >= 20
    assert figures["held_out_right"] > 0.6
    with serving(home, "--policy", "models:/widths@champion") as live:
        assert live.client.cluster()["policy"] == "optimus_with_promises"
        assert "champion not found" in " ".join(run(live, "cluster").split())
        for name in ("b-1", "b-2"):
            submit(live, "train_scaling", name, 2_000)
        run(live, "train", "promote", "widths", "1")
        until_decides(live, "models:/widths/1")
        bad = ModelFile("widths", save(tmp_path / "bad.npz", lazy=True), "", alias="challenger")
        register_file(f"sqlite:///{home / 'mlflow.db'}", bad)
        run(live, "train", "promote", "widths", "2")
        until_decides(live, "models:/widths/2")
        until_decides(live, "optimus_with_promises")
        assert "models:/widths/2 does not decide: its measured reward" in " ".join(
            run(live, "cluster").split()
        )
        run(live, "train", "promote", "widths", "1")
        until_decides(live, "models:/widths/1")
        assert live.client.cluster()["learned"]["fallback"] == ""
    assert "every plan is the same, byte for byte" in run(live, "replay")
