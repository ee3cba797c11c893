"""What is saved of the user's objects comes back in place, whatever the objects are."""

import random
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from laxity.worker.checkpoints.checkpoint import CheckpointError, Checkpoints
from laxity.worker.checkpoints.state import States, capture_state

GENERATOR = np.random.default_rng


class Model:
    def __init__(self, seed: int) -> None:
        rng = GENERATOR(seed)
        self.layers = [rng.normal(size=(2, 3)), rng.normal(size=3)]
        self.rng = rng
        self.name = f"model {seed}"


def saved_and_restored(folder: Path, before: Any, after: Any) -> None:
    """Save one thing and put its state into another."""
    checkpoints = Checkpoints(folder)
    checkpoints.write(1, fill=States([before]).fill)
    newest = checkpoints.newest()
    assert newest is not None
    States([after]).read(newest.path)


def test_an_object_gets_its_attributes_back_in_place(tmp_path: Path) -> None:
    before, after = Model(1), Model(2)
    held = after.layers[0]

    saved_and_restored(tmp_path, before, after)

    assert after.layers[0] is held
    assert [layer.tobytes() for layer in after.layers] == [x.tobytes() for x in before.layers]
    assert after.name == "model 1"
    assert after.rng.normal() == before.rng.normal()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(np.arange(3.0), np.zeros(3), id="an array"),
        pytest.param({"w": np.ones(2), "n": 3}, {"w": np.zeros(2), "old": 1}, id="a dict"),
        pytest.param([np.ones(2), "x"], [np.zeros(2)], id="a list"),
    ],
)
def test_arrays_and_containers_are_refilled(tmp_path: Path, before: Any, after: Any) -> None:
    saved_and_restored(tmp_path, before, after)

    assert repr(after) == repr(before)


@pytest.mark.parametrize(
    ("before", "after", "draw"),
    [
        pytest.param(GENERATOR(1), GENERATOR(2), "normal", id="numpy's generator"),
        pytest.param(
            np.random.RandomState(1),
            np.random.RandomState(2),
            "normal",
            id="numpy's old one",
        ),
        pytest.param(random.Random(1), random.Random(2), "random", id="Python's"),
    ],
)
def test_generators_go_on_where_they_were(
    tmp_path: Path, before: Any, after: Any, draw: str
) -> None:
    saved_and_restored(tmp_path, before, after)

    assert getattr(after, draw)() == getattr(before, draw)()


def test_a_scikit_learn_model_goes_on_training_as_if_nothing_had_happened(tmp_path: Path) -> None:
    from sklearn.linear_model import SGDClassifier

    rng = GENERATOR(5)
    rows, labels = rng.normal(size=(40, 4)), rng.integers(0, 3, size=40)
    models = [SGDClassifier(random_state=3) for _ in range(2)]
    models[0].partial_fit(rows, labels, classes=[0, 1, 2])

    saved_and_restored(tmp_path, models[0], models[1])

    for model in models:
        model.partial_fit(rows, labels)
    assert models[0].coef_.tobytes() == models[1].coef_.tobytes()


def test_what_cannot_be_pickled_is_named(tmp_path: Path) -> None:
    model = Model(1)
    model.lock = threading.Lock()  # type: ignore[attr-defined]

    with pytest.raises(CheckpointError, match=r"Model\.lock cannot be pickled"):
        Checkpoints(tmp_path).write(1, fill=States([model]).fill)

    assert list(tmp_path.iterdir()) == []


def test_a_number_alone_cannot_be_restored_in_place(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="a value of type int cannot be restored in place"):
        Checkpoints(tmp_path).write(1, fill=States([3]).fill)


def test_fewer_objects_in_the_checkpoint_than_asked_for_is_an_error(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(1, fill=States([np.zeros(2)]).fill)
    newest = checkpoints.newest()
    assert newest is not None

    with pytest.raises(CheckpointError, match=r"holds 1 object, but 2 were given"):
        States([np.zeros(2), np.zeros(2)]).read(newest.path)


def test_an_array_of_another_shape_is_an_error_that_shows_both(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"holds a ndarray of shape \(3,\) where .* \(2,\)"):
        saved_and_restored(tmp_path, np.zeros(3), np.zeros(2))


class OnGpu:
    """A tensor on a GPU, as far as saving it goes."""

    def detach(self) -> "OnGpu":
        return self

    def cpu(self) -> str:
        return "on the CPU"


class Module:
    def state_dict(self) -> OrderedDict[str, Any]:
        state: OrderedDict[str, Any] = OrderedDict(weight=OnGpu(), inner={"steps": [OnGpu()]})
        state.versions = "1"  # type: ignore[attr-defined]
        return state

    def load_state_dict(self, state: object) -> None: ...


def test_tensors_of_a_module_on_a_gpu_are_saved_where_every_machine_can_read_them() -> None:
    state = capture_state(Module())
    assert state == {"weight": "on the CPU", "inner": {"steps": ["on the CPU"]}}
    assert state.versions == "1"
