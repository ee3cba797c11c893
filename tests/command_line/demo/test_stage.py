from pathlib import Path

import pytest

from examples.demo.acts import demo_environment, empty_folder
from laxity import names
from laxity.cli.exit_codes import USAGE, CommandError


def test_a_folder_that_no_demo_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")

    with pytest.raises(CommandError, match="is not empty") as caught:
        empty_folder(tmp_path, {})

    assert caught.value.code == USAGE
    assert (tmp_path / "thesis.tex").exists()


def test_what_an_earlier_demo_made_is_wiped(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    environment = demo_environment(folder)
    empty_folder(folder, environment)
    (folder / "mlflow.db").write_text("")

    empty_folder(folder, environment)

    assert not (folder / "mlflow.db").exists()


def test_a_users_own_servers_are_none_of_the_demos_business(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mlflow.example")
    monkeypatch.setenv("LAXITY_TOKEN", "secret")
    monkeypatch.setenv("LAXITY_URL", "https://laxity.example")

    environment = demo_environment(tmp_path)

    assert environment[names.ENV_HOME] == str(tmp_path)
    assert not {"MLFLOW_TRACKING_URI", "LAXITY_TOKEN", "LAXITY_URL"} & set(environment)
