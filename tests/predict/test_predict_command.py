"""`laxity predict` answers from the store, for people and for programs."""

import json
from pathlib import Path

import pytest
from typer.testing import Result

from laxity.cli.exit_codes import CommandError
from laxity_profiler.cli.commands import register
from laxity_profiler.history.history import History
from tests.support.command_line import invoke
from tests.support.runs import trained


def ask(home: Path, *words: str) -> Result:
    where = {"LAXITY_HOME": str(home), "COLUMNS": "120"}
    return invoke(["predict", *words], register, env=where)


def test_the_widths_asked_for_are_answered_in_json(tmp_path: Path, history: History) -> None:
    trained(history, "u", epoch_s=[10.0] * 9)

    answer = json.loads(ask(tmp_path, "mlp", "--workers", "1..3", "--epochs", "5", "--json").output)

    rows = answer["widths"]
    assert [row["workers"] for row in rows] == [1, 2, 3]
    assert rows[0]["whole"]["p50_s"] == pytest.approx(50.0)
    assert rows[0]["source"] == "history"
    assert rows[0]["epoch"]["p90_s"] > rows[0]["epoch"]["p50_s"] > rows[1]["epoch"]["p50_s"]


def test_a_person_gets_a_table(tmp_path: Path, history: History) -> None:
    trained(history, "u", epoch_s=[10.0] * 9)

    shown = ask(tmp_path, "mlp", "--workers", "1", "--epochs", "60").output

    assert "mlp, 60 epochs" in shown
    assert "10m00s" in shown
    assert "history" in shown


def test_what_is_not_known_is_said(tmp_path: Path, history: History) -> None:
    trained(history, "u", epoch_s=[10.0] * 9)

    unknown = json.loads(ask(tmp_path, "bert", "--workers", "1", "--json").output)
    guessed = json.loads(
        ask(tmp_path, "bert", "--workers", "1", "--estimate", "90s", "--json").output
    )

    assert unknown["widths"][0]["epoch"]["p90_s"] is None
    assert guessed["widths"][0]["epoch"]["p50_s"] == pytest.approx(90.0)
    assert "not known" in ask(tmp_path, "bert").output


def test_without_a_store_the_command_says_what_to_do(tmp_path: Path) -> None:
    error = ask(tmp_path / "nowhere", "mlp").exception

    assert isinstance(error, CommandError)
    assert "Start one with laxity up" in str(error)


def test_a_store_that_is_misspelt_is_neither_made_nor_a_traceback(tmp_path: Path) -> None:
    misspelt = ask(tmp_path, "mlp", "--store", f"sqlite:///{tmp_path}/nowhere/x.db").exception
    no_url = ask(tmp_path, "mlp", "--store", "laxity.db").exception
    (tmp_path / "garbled.db").write_bytes(b"\x07" * 5000)
    garbled = ask(tmp_path, "mlp", "--store", f"sqlite:///{tmp_path}/garbled.db").exception

    assert isinstance(misspelt, CommandError)
    assert not (tmp_path / "nowhere").exists()
    assert "write sqlite:///PATH" in str(no_url)
    assert str(garbled).endswith("did not do it: file is not a database")


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("mlp", "--workers", "4..1"), id="backwards"),
        pytest.param(("mlp", "--workers", "0"), id="nobody"),
        pytest.param(("",), id="no model"),
        pytest.param(("train.py",), id="a script without its function"),
    ],
)
def test_a_question_that_makes_no_sense_is_wrong_usage(
    words: tuple[str, ...], tmp_path: Path, history: History
) -> None:
    trained(history, "u", epoch_s=[10.0] * 9)

    error = ask(tmp_path, *words).exception

    assert isinstance(error, CommandError)
    assert error.code == 2


def test_a_job_as_it_would_be_submitted_is_answered_at_its_own_widths(
    tmp_path: Path, history: History
) -> None:
    trained(history, "u", epoch_s=[10.0] * 9)
    (tmp_path / "train.py").write_text(
        "from laxity import deadline_flow\n\n\n"
        '@deadline_flow(deadline="20m", workers=(1, 3), model="mlp", epochs=30)\n'
        "def mine(training):\n"
        "    pass\n"
    )

    answer = json.loads(ask(tmp_path, f"{tmp_path}/train.py:mine", "--json").output)
    fewer = json.loads(ask(tmp_path, f"{tmp_path}/train.py:mine", "--epochs", "3", "--json").output)

    assert answer["model"] == "mlp"
    assert [row["workers"] for row in answer["widths"]] == [1, 3]
    assert answer["widths"][0]["whole"]["p50_s"] == pytest.approx(300.0)
    assert fewer["widths"][0]["whole"]["p50_s"] == pytest.approx(30.0)


def test_of_a_model_that_was_never_trained_those_named_alike_are_told(
    tmp_path: Path, history: History
) -> None:
    trained(history, "u", epoch_s=[10.0] * 9)

    assert "mlp2 was never trained here; known: mlp" in ask(tmp_path, "mlp2").output
    assert "never trained" not in ask(tmp_path, "mlp").output


def test_a_width_that_never_ran_is_called_extrapolated(tmp_path: Path, history: History) -> None:
    trained(history, "u", epoch_s=[10.0] * 9)

    rows = json.loads(ask(tmp_path, "mlp", "--workers", "1,2", "--json").output)["widths"]

    assert [(row["source"], row["seen"] > 0) for row in rows] == [
        ("history", True),
        ("extrapolated", False),
    ]
    assert "extrapolated" in ask(tmp_path, "mlp", "--workers", "2").output


def test_a_function_that_wants_an_argument_gets_it_with_p(tmp_path: Path, history: History) -> None:
    trained(history, "u", epoch_s=[10.0] * 9)
    (tmp_path / "train.py").write_text("def mlp(training, rate: float):\n    pass\n")
    entry = f"{tmp_path}/train.py:mlp"

    assert "write -p KEY=VALUE" in str(ask(tmp_path, entry).exception)
    assert "history" in ask(tmp_path, entry, "-p", "rate=0.1").output
    assert "-p is for functions" in str(ask(tmp_path, "mlp", "-p", "rate=0.1").exception)
