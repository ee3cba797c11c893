"""A training that gave nothing to restore() holds no state: each start of it begins at epoch 1."""

import functools
import json
import pickle
import types
from collections import deque
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from laxity import Training
from laxity.worker.checkpoints.checkpoint import CheckpointError, Checkpoints
from laxity.worker.reports import read_lines
from laxity.worker.training import TrainingError

EPOCHS = 4
Give = Callable[[Training], Any]


class Colour(Enum):
    RED = 1


class Slotted:
    __slots__ = ("weights",)


class Extended(Slotted):
    """It has a __dict__, and weights that do not stand in it."""


class Net:
    """A model as libraries have them: its state is taken out and put back by methods."""

    def __init__(self) -> None:
        self.weights = [0]

    def state_dict(self) -> dict[str, list[int]]:
        return {"weights": list(self.weights)}

    def load_state_dict(self, state: dict[str, list[int]]) -> None:
        self.weights[:] = state["weights"]


class Momentum(Net):
    pass


def nothing(_: Training) -> None: ...


@pytest.fixture(autouse=True)
def a_save_after_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this machine is."""
    monkeypatch.setenv("LAXITY_SAVING_SHARE", "1")


def trained(
    folder: Path, *, until: int = EPOCHS, give: Give = nothing, resumes: bool = False
) -> list[int]:
    """The epochs that one start trains before it is lost after epoch `until`."""
    training, epochs = Training(EPOCHS, folder=folder, resumes=resumes), []
    give(training)
    for epoch in training.epochs():
        if epoch > until:
            break
        epochs.append(epoch)
    return epochs


def restoring(*things: Any) -> Give:
    return lambda training: training.restore(*things)


def saved(folder: Path, *things: Any, until: int = 2) -> None:
    trained(folder, until=until, give=restoring(*things))


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("epoch-*"))


# --- nothing given ---


@pytest.mark.parametrize("give", [nothing, restoring()], ids=["no call", "an empty call"])
def test_a_second_start_begins_at_epoch_1(tmp_path: Path, give: Give) -> None:
    first = trained(tmp_path, until=2, give=give)

    second = trained(tmp_path, give=give)

    assert (first, second) == ([1, 2], [1, 2, 3, 4])
    assert checkpoints(tmp_path) == []


def test_a_training_that_was_done_is_trained_again(tmp_path: Path) -> None:
    """Killed while it exported its model, it has none to export."""
    assert [trained(tmp_path) for _ in range(2)] == [[1, 2, 3, 4]] * 2


def test_what_a_stop_costs_is_said_once_at_the_first_boundary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = [
        (epoch, capsys.readouterr().err) for epoch in Training(EPOCHS, folder=tmp_path).epochs()
    ]

    warning = "nothing was given to training.restore(): a stop loses all epochs"
    assert [epoch for epoch, text in said if warning in text] == [2]


def test_a_start_says_that_an_earlier_one_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(tmp_path, until=3)

    trained(tmp_path, until=1)

    assert "it begins at epoch 1: no checkpoint holds the 3 epochs" in capsys.readouterr().err


@pytest.mark.parametrize(
    "give",
    [
        pytest.param(restoring([0]), id="restore"),
        pytest.param(
            lambda training: training.checkpoint_with(Path.touch, Path.read_bytes),
            id="checkpoint_with",
        ),
    ],
)
def test_who_holds_state_hears_nothing_and_goes_on(
    tmp_path: Path, give: Give, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(tmp_path, until=2, give=give)

    assert trained(tmp_path, give=give) == [3, 4]
    assert capsys.readouterr().err == ""


def test_code_that_keeps_its_own_state_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(tmp_path, until=2, resumes=True)
    again = Training(EPOCHS, folder=tmp_path, resumes=True)

    assert again.restore() == 2
    assert list(again.epochs()) == [3, 4]
    assert capsys.readouterr().err == ""


def test_without_a_folder_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(Training(EPOCHS).epochs()) == [1, 2, 3, 4]
    assert capsys.readouterr().err == ""


def test_each_epoch_is_reported_with_what_is_known_and_only_once_as_new(tmp_path: Path) -> None:
    trained(tmp_path, until=2)
    trained(tmp_path)

    lines = [line for line in read_lines(tmp_path / "reports.jsonl") if line["kind"] == "epoch"]
    assert [line["epoch"] for line in lines] == [1, 2, 1, 2, 3, 4]
    assert [line.get("again", False) for line in lines] == [False, False, True, True, False, False]
    assert {line["holds_state"] for line in lines} == {False}


def test_the_empty_checkpoints_of_an_earlier_laxity_count_for_nothing(tmp_path: Path) -> None:
    """They would also make the new ones go: the newest two are kept."""
    for epoch in (2, 3):
        Checkpoints(tmp_path).write(epoch, fill=lambda folder: _dump([], folder))
    state = [0]

    first = trained(tmp_path, until=1, give=restoring(state))

    assert first == [1]
    assert checkpoints(tmp_path) == ["epoch-00000001"]
    assert trained(tmp_path, give=restoring(state)) == [2, 3, 4]


def test_the_full_checkpoints_of_an_earlier_laxity_are_gone_on_from(tmp_path: Path) -> None:
    Checkpoints(tmp_path).write(3, fill=lambda folder: _dump([[7]], folder))
    state = [0]

    assert trained(tmp_path, give=restoring(state)) == [4]
    assert state == [7]


def _dump(states: list[Any], folder: Path) -> None:
    (folder / "objects.pkl").write_bytes(pickle.dumps(states, pickle.HIGHEST_PROTOCOL))


def test_code_that_begins_to_restore_reports_all_epochs_that_it_trains(tmp_path: Path) -> None:
    """After two lost epochs it restores, is stopped in its second epoch, and goes on from the first."""
    trained(tmp_path, until=2)
    trained(tmp_path, until=1, give=restoring([0]))

    assert trained(tmp_path, give=restoring([0])) == [2, 3, 4]
    lines = [line for line in read_lines(tmp_path / "reports.jsonl") if line["kind"] == "epoch"]
    assert [line["epoch"] for line in lines] == [1, 2, 1, 2, 3, 4]


# --- what cannot be restored ---


@pytest.mark.parametrize(
    "thing",
    [
        0.3, None, (1, 2), "text", b"bytes", 7, True, {1}, frozenset(), deque([1]), Colour.RED,
        np.float64(3.0), np.broadcast_to(np.zeros(2), (2, 2)), Net, nothing, np, Path("x"), iter([1]),
        types.MappingProxyType({}), Slotted(), Extended(), (Net(), Net()),
    ],
    ids=lambda thing: f"{type(thing).__name__}-{str(thing)[:20]}",
)  # fmt: skip
def test_what_cannot_be_put_back_is_an_error_at_once(thing: Any) -> None:
    with pytest.raises(
        CheckpointError, match=f"{type(thing).__name__} cannot be restored in place"
    ):
        Training(EPOCHS).restore([0], thing)


@pytest.mark.parametrize(
    "thing",
    [{}, [], np.zeros(2), Net(), types.SimpleNamespace(best=0.0), np.random.default_rng(1)],
    ids=lambda thing: type(thing).__name__,
)
def test_what_can_be_put_back_is_taken(thing: Any) -> None:
    assert Training(EPOCHS).restore(thing) == 0


def test_a_restored_model_inside_of_a_container_is_the_one_that_trains(tmp_path: Path) -> None:
    before, after = Net(), Net()
    before.weights[:] = [5]
    saved(tmp_path, {"net": before, "pair": (before, 3)}, [before])
    in_pair, in_list = Net(), Net()

    Training(EPOCHS, folder=tmp_path).restore({"net": after, "pair": (in_pair, 0)}, [in_list])

    assert [net.weights for net in (after, in_pair, in_list)] == [[5]] * 3


# --- fewer, other and more than was saved ---


@pytest.mark.parametrize(
    ("give", "words"),
    [
        pytest.param(nothing, r"object 1 \(Net\).*object 2 \(list\)", id="nothing"),
        pytest.param(restoring(Net()), r"holds object 2 \(list\) of restore\(\)", id="one of two"),
        pytest.param(restoring([0], Net()), "object 1 .* type Net.*given a list", id="swapped"),
        pytest.param(restoring(Momentum(), [0]), "type Net.*given a Momentum", id="another type"),
        pytest.param(restoring(Net(), [0], []), "2 objects, but 3 were given", id="one more"),
    ],
)
def test_a_start_that_restores_other_things_fails_before_its_first_epoch(
    tmp_path: Path, give: Give, words: str
) -> None:
    saved(tmp_path, Net(), [0])
    kept = checkpoints(tmp_path)
    epochs: list[int] = []

    with pytest.raises(CheckpointError, match=words) as error:
        epochs += trained(tmp_path, give=give)

    assert epochs == []
    assert "laxity submit --fresh" in str(error.value)
    assert checkpoints(tmp_path) == kept, "who gives the same again goes on"
    assert trained(tmp_path, give=restoring(Net(), [0])) == [3, 4]


def own(training: Training) -> None:
    training.checkpoint_with(Path.touch, Path.read_bytes)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        pytest.param(own, nothing, r"what checkpoint_with\(\) saved", id="own, then nothing"),
        pytest.param(restoring([0]), own, r"nothing for checkpoint_with\(\)", id="own is new"),
    ],
)
def test_state_of_its_own_is_compared_as_well(
    tmp_path: Path, first: Give, second: Give, words: str
) -> None:
    trained(tmp_path, until=2, give=first)

    with pytest.raises(CheckpointError, match=words):
        trained(tmp_path, give=second)


def test_who_no_longer_keeps_his_own_state_is_told(tmp_path: Path) -> None:
    trained(tmp_path, until=2, resumes=True)

    with pytest.raises(CheckpointError, match="resumes=True"):
        trained(tmp_path)


def test_things_given_one_after_the_other_are_compared_together(tmp_path: Path) -> None:
    def one_by_one(training: Training) -> None:
        training.restore(Net())
        training.restore([0])

    saved(tmp_path, Net(), [0])

    assert trained(tmp_path, give=one_by_one) == [3, 4]


def test_a_save_that_writes_to_another_path_fails_at_the_first_epoch(tmp_path: Path) -> None:
    """NumPy adds .npy to the name: what is not at the path is never loaded."""

    def give(training: Training) -> None:
        training.checkpoint_with(lambda path: np.save(path, np.zeros(2)), np.load)

    with pytest.raises(CheckpointError, match=r"nothing to its path, 'own' but own.npy"):
        trained(tmp_path, give=give)


def test_callables_given_after_the_first_epoch_are_an_error(tmp_path: Path) -> None:
    training = Training(EPOCHS, folder=tmp_path)
    next(training.epochs())

    with pytest.raises(TrainingError, match=r"checkpoint_with\(\) comes before epochs\(\)"):
        training.checkpoint_with(Path.touch, functools.partial(json.load))


def test_random_numbers_alone_are_no_state_to_go_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAXITY_SAVING_SHARE", "1")
    reached = []
    for _ in range(2):
        training = Training(4, folder=tmp_path)
        reached.append(training.restore(random=True))
        for epoch in training.epochs():
            if epoch == 3:
                break
    assert reached == [0, 0]
