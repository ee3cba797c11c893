"""Slots of this machine that an inference process lends, and wants back: real workers, real orders."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from laxity_scheduler.service.settings import Settings, SettingsError
from tests.support import waiting
from tests.support.local_service import LocalService, local_service

until = partial(waiting.until, limit_s=90.0)
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
def live(tmp_path: Path) -> Iterator[LocalService]:
    (tmp_path / "work.py").write_text(
        TRAINING.format(notes=str(tmp_path / "notes"), hurry=str(tmp_path / "hurry"))
    )
    options = ("--inference-slots", "2")
    with local_service(tmp_path / "home", slots=1, options=options) as started:
        yield started


def order(live: LocalService, body: dict[str, Any] | None) -> dict[str, Any]:
    """What the service answers; no body takes the order back."""
    reply = live.ask("DELETE" if body is None else "POST", "/v1/loans", body)
    return dict(reply.raise_for_status().json())


def pools(live: LocalService) -> dict[str, str]:
    return {node["id"]: node["pool"] for node in live.client.cluster()["nodes"]}


def widths(live: LocalService) -> dict[int, list[int]]:
    """The widths that each epoch was trained at: one, if it was trained once."""
    rows = [line.split() for line in (live.home.parent / "notes").read_text().splitlines()]
    return {
        int(epoch): [int(width) for other, width in rows if other == epoch] for epoch, _ in rows
    }


def submit(live: LocalService) -> None:
    done = live.laxity(
        "submit", f"{live.home.parent / 'work.py'}:train", "--name", "grows", "--workers", "1..3",
        "--epochs", str(EPOCHS), "--deadline", "1h", "--estimate", "1s",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_promised_training_grows_into_lent_slots_and_leaves_at_the_end_of_an_epoch(
    live: LocalService,
) -> None:
    submit(live)
    live.until("grows", lambda job: job.epochs_done >= 2)
    assert pools(live) == {
        "local": "training",
        "inference-0": "inference",
        "inference-1": "inference",
    }
    assert order(live, {"loan": 2})["allowed_gpus"] == 2
    until(lambda: [3] in widths(live).values(), "an epoch on three workers")
    line = live.laxity("cluster").stdout
    assert "2 of 2 inference GPUs lent" in line
    order(live, {"reclaim": 2, "by": "5m"})
    until(lambda: set(pools(live).values()) == {"training", "inference"}, "both to go back")
    view = live.client.job("grows")
    assert (view.state, view.workers, view.preemptions) == ("running", 1, 0)
    order(live, {"loan": 1})
    until(lambda: [2] in widths(live).values(), "an epoch on two workers")
    assert order(live, None)["allowed_gpus"] == 0, "without an order nothing is lent"
    until(lambda: "loaned" not in pools(live).values(), "it to go back")
    (live.home.parent / "hurry").touch()
    live.ended("grows")
    assert live.client.job("grows").raw["outcome"] == "kept"
    trained = widths(live)
    assert sorted(trained) == list(range(1, EPOCHS + 1))
    assert [width for width in trained.values() if len(width) > 1] == [], "each epoch once"


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_slots_stay_lent_when_the_service_is_killed_and_go_back_when_it_is_up_again(
    live: LocalService,
) -> None:
    submit(live)
    order(live, {"loan": 2})
    until(lambda: (live.home.parent / "notes").exists() and [3] in widths(live).values(), "growth")
    live.kill()
    live.start()
    assert [pools(live)[f"inference-{number}"] for number in (0, 1)] == ["loaned"] * 2
    order(live, {"reclaim": 2})
    until(lambda: "loaned" not in pools(live).values(), "both to go back")
    (live.home.parent / "hurry").touch()
    live.ended("grows")
    trained = widths(live)
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
