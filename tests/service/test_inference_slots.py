"""Slots of this machine that an inference process lends, and wants back: real workers, real orders."""

import json
import os
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from laxity.api.client import Client
from laxity_scheduler.service.settings import Settings, SettingsError
from tests.service.test_up import client, laxity

PATIENCE_S = 90.0
EPOCHS = 150  # its end comes after all that is told to it, also on a slow machine
# Its epochs are long enough to be seen, shorter on more workers; each is noted with its width.
TRAINING = """
import time
from pathlib import Path

def train(training):
    training.restore({{}})
    with open({notes!r}, "a") as notes:
        for epoch in training.epochs():
            for _ in training.shard(list(range(8))):
                time.sleep(0.0 if Path({hurry!r}).exists() else 0.1)
            if training.rank == 0:
                print(epoch, training.workers, file=notes, flush=True)
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "work.py").write_text(
        TRAINING.format(notes=str(tmp_path / "notes"), hurry=str(tmp_path / "hurry"))
    )
    yield tmp_path / "home"
    laxity(tmp_path / "home", "down", ok=False)


def order(home: Path, body: dict[str, Any] | None) -> dict[str, Any]:
    """What the service answers; no body takes the order back."""
    told = json.loads((home / "service.json").read_text())
    request = urllib.request.Request(  # noqa: S310 - http on loopback
        f"{told['url']}/v1/loans",
        method="DELETE" if body is None else "POST",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {told['token']}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as reply:  # noqa: S310
        answer: dict[str, Any] = json.loads(reply.read())
    return answer


def until(check: Callable[[], bool], words: str) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not check():
        assert time.monotonic() < give_up_at, f"waited for {words}"
        time.sleep(0.05)


def pools(service: Client) -> dict[str, str]:
    return {node["id"]: node["pool"] for node in service.cluster()["nodes"]}


def widths(home: Path) -> dict[int, list[int]]:
    """The widths that each epoch was trained at: one, if it was trained once."""
    rows = [line.split() for line in (home.parent / "notes").read_text().splitlines()]
    return {
        int(epoch): [int(width) for other, width in rows if other == epoch] for epoch, _ in rows
    }


def submit(home: Path) -> None:
    laxity(
        home, "submit", f"{home.parent / 'work.py'}:train", "--name", "grows", "--workers", "1..3",
        "--epochs", str(EPOCHS), "--deadline", "1h", "--estimate", "1s",
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_promised_training_grows_into_lent_slots_and_leaves_at_the_end_of_an_epoch(
    home: Path,
) -> None:
    laxity(home, "up", "--port", "0", "--slots", "1", "--inference-slots", "2")
    service = client(home)
    submit(home)
    until(lambda: service.job("default/grows").epochs_done >= 2, "it to train")
    assert pools(service) == {
        "local": "training",
        "inference-0": "inference",
        "inference-1": "inference",
    }
    assert order(home, {"loan": 2})["allowed_gpus"] == 2
    until(lambda: [3] in widths(home).values(), "an epoch on three workers")
    line = laxity(home, "cluster")
    assert "2 of 2 inference GPUs lent" in line
    order(home, {"reclaim": 2, "by": "5m"})
    until(lambda: set(pools(service).values()) == {"training", "inference"}, "both to go back")
    view = service.job("default/grows")
    assert (view.state, view.workers, view.preemptions) == ("running", 1, 0)
    order(home, {"loan": 1})
    until(lambda: [2] in widths(home).values(), "an epoch on two workers")
    assert order(home, None)["allowed_gpus"] == 0, "without an order nothing is lent"
    until(lambda: "loaned" not in pools(service).values(), "it to go back")
    (home.parent / "hurry").touch()
    until(lambda: service.job("default/grows").ended, "its end")
    assert service.job("default/grows").raw["outcome"] == "kept"
    trained = widths(home)
    assert sorted(trained) == list(range(1, EPOCHS + 1))
    assert [width for width in trained.values() if len(width) > 1] == [], "each epoch once"


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_slots_stay_lent_when_the_service_is_killed_and_go_back_when_it_is_up_again(
    home: Path,
) -> None:
    options = ("--port", "0", "--slots", "1", "--inference-slots", "2")
    laxity(home, "up", *options)
    submit(home)
    order(home, {"loan": 2})
    until(lambda: (home.parent / "notes").exists() and [3] in widths(home).values(), "growth")
    os.kill(int(json.loads((home / "service.json").read_text())["pid"]), 9)
    laxity(home, "up", *options)
    service = client(home)
    assert [pools(service)[f"inference-{number}"] for number in (0, 1)] == ["loaned"] * 2
    order(home, {"reclaim": 2})
    until(lambda: "loaned" not in pools(service).values(), "both to go back")
    (home.parent / "hurry").touch()
    until(lambda: service.job("default/grows").ended, "its end")
    trained = widths(home)
    assert sorted(trained) == list(range(1, EPOCHS + 1))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"inference_slots": -1}, "inference slots must be 0 to 4096"),
        ({"inference_slots": 5000}, "inference slots must be 0 to 4096"),
        (
            {"inference_slots": 1, "world": "kubernetes"},
            "label its nodes laxity.dev/pool=inference",
        ),
    ],
)
def test_inference_slots_that_cannot_be_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        Settings(**settings)
