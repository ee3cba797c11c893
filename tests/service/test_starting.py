"""What the service's commands say where a home, a store or an option makes no sense."""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import Result

from laxity.cli.exit_codes import CommandError
from laxity_scheduler.commands import register
from laxity_scheduler.process.instance_dir import InstanceDir
from laxity_scheduler.process.open_policies import find_policy
from laxity_scheduler.service.settings import Settings, SettingsError
from laxity_scheduler.store.store import Store, StoreError
from tests.support.command_line import invoke
from tests.support.waiting import until


def asked(home: Path, *words: str) -> Result:
    return invoke(words, register, env={"LAXITY_HOME": str(home)})


def error_of(home: Path, *words: str) -> CommandError:
    error = asked(home, *words).exception
    assert isinstance(error, CommandError), error
    return error


def test_a_journal_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    error = error_of(tmp_path, "replay")
    assert (error.code, str(error)) == (4, f"there is no journal at {tmp_path}/laxity.db")
    assert list(tmp_path.iterdir()) == []


def test_cycles_that_the_journal_does_not_have_are_not_said_to_be_the_same(tmp_path: Path) -> None:
    Store.open(f"sqlite:///{tmp_path}/laxity.db").close()
    backwards = error_of(tmp_path, "replay", "--from", "10", "--until", "5")
    none = asked(tmp_path, "replay", "--from", "9" * 30)
    assert "--until 5 comes before --from 10" in str(backwards)
    assert none.output == "no such cycle is in the journal: nothing was decided again\n"


def test_a_home_that_is_not_there_has_no_service_and_stays_away(tmp_path: Path) -> None:
    said = asked(tmp_path / "nowhere", "down")
    assert said.output == "no service was up\n"
    assert not (tmp_path / "nowhere").exists()


def test_a_world_that_is_not_installed_is_wrong_usage_of_down(tmp_path: Path) -> None:
    error = error_of(tmp_path, "down", "--world", "mars")
    assert error.code == 2
    assert "known: kubernetes, local" in str(error)


@pytest.mark.parametrize("url", ["laxity.db", "oracle9://u:secret@h/x", "://"])
def test_a_store_that_is_no_address_is_told_without_its_password(url: str) -> None:
    with pytest.raises(StoreError, match="write sqlite:///PATH or postgresql") as caught:
        Store.open(url)
    assert "secret" not in str(caught.value)


def test_a_store_of_a_newer_laxity_is_left_as_it_is(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/laxity.db"
    Store.open(url).close()
    with sqlite3.connect(tmp_path / "laxity.db") as database:
        database.execute("update laxity_schema set version_num = '9999'")
    database.close()
    with pytest.raises(StoreError, match="is of another laxity, a newer one"):
        Store.open(url)


def test_a_folder_whose_disk_does_not_do_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("laxity_scheduler.process.serve.serve_forever", full)
    assert str(error_of(tmp_path, "serve")) == f"{tmp_path}: database or disk is full"


def test_a_policy_that_there_is_not_is_told_which_there_are() -> None:
    with pytest.raises(SettingsError, match=r"one of aryl, chronus, .*, qos, .*, srtf"):
        find_policy("astrology")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"slots": 99_999_999}, id="more slots than processes"),
        pytest.param({"webhook": "chat"}, id="a webhook that is no address"),
        pytest.param({"public_url": "here:80"}, id="an address without its scheme"),
        pytest.param({"pods_within_s": 0.0}, id="no time for pods"),
        pytest.param({"pods_within_s": float("nan")}, id="no number"),
    ],
)
def test_options_that_cannot_work_are_refused_before_anything_starts(
    options: dict[str, object],
) -> None:
    with pytest.raises(
        SettingsError, match=r"slots must be 1 to 4096|write http://HOST:PORT|at least 1 s"
    ):
        Settings(**options)  # type: ignore[arg-type] # that is what is tried


@pytest.mark.slow
def test_who_interrupts_up_is_left_no_service(tmp_path: Path) -> None:
    """While it waits for a database that does not answer: `up` is not done before it is interrupted."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        store = f"postgresql://laxity@127.0.0.1:{deaf.getsockname()[1]}/laxity"
        command = [sys.executable, "-m", "laxity.cli.main", "up", "--port", "0", "--store", store]
        starting = subprocess.Popen(command, env=os.environ | {"LAXITY_HOME": str(tmp_path)})
        until(
            lambda: InstanceDir(tmp_path).running_service() or starting.poll() is not None,
            "a service that starts",
        )
        starting.send_signal(signal.SIGINT)
        assert starting.wait(60.0) == 130
    assert InstanceDir(tmp_path).running_service() is None
