"""How a worker finds the user's function and what it calls it with."""

import sys
from pathlib import Path
from typing import Any

import pytest

from laxity.worker.code.entrypoint import EntryError, call_arguments, load_function
from laxity.worker.training import Training


@pytest.fixture(autouse=True)
def path_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def written(folder: Path, text: str) -> str:
    file = folder / "user_code.py"
    file.write_text(text)
    return str(file)


def test_a_function_of_a_file_finds_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "user_neighbour.py").write_text("ANSWER = 42")
    file = written(tmp_path, "from user_neighbour import ANSWER\ndef train(): return ANSWER\n")

    assert load_function(f"{file}:train")() == 42


def test_a_function_of_a_module_is_imported() -> None:
    assert load_function("json:dumps")({}) == "{}"


def test_inside_a_deadline_flow_is_the_function_and_no_prefect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAXITY_JOB", "team/a")
    file = written(
        tmp_path,
        "from laxity import deadline_flow\n"
        "@deadline_flow(deadline='20m', epochs=2)\n"
        "def train(training, hidden=3): return hidden\n",
    )

    function = load_function(f"{file}:train")

    assert function(None) == 3


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        pytest.param("train", "expected module:function", id="no function named"),
        pytest.param("/no/such/file.py:train", "is not a file", id="no such file"),
        pytest.param("json:nothing", "json has no 'nothing'", id="no such function"),
        pytest.param("sys:path", "is a list, not a function", id="not a function"),
    ],
)
def test_what_cannot_be_found_is_said(entry: str, words: str) -> None:
    with pytest.raises(EntryError, match=words):
        load_function(entry)


def by_name(training: Any, hidden: int = 64) -> None: ...


def by_annotation(run: Training, hidden: int = 64) -> None: ...


def by_text(run: "Training", hidden: int = 64) -> None: ...


@pytest.mark.parametrize(
    ("function", "name"),
    [
        pytest.param(by_name, "training", id="by its name"),
        pytest.param(by_annotation, "run", id="by its annotation"),
        pytest.param(by_text, "run", id="by its annotation as text"),
    ],
)
def test_the_training_goes_where_it_is_asked_for(function: Any, name: str) -> None:
    training = Training(epochs=1)

    given = call_arguments(function, training, '{"hidden": 8}')

    assert given == {name: training, "hidden": 8}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("{", "not JSON", id="half an object"),
        pytest.param("[1]", "a list, not a JSON object", id="a list"),
        pytest.param('{"hiden": 8}', r"unexpected keyword argument 'hiden'", id="a typing error"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(text: str, words: str) -> None:
    with pytest.raises(EntryError, match=words):
        call_arguments(by_name, Training(epochs=1), text)
