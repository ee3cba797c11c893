"""Learned policies in MLflow's registry: put in force by an alias, followed, refused, rolled back."""

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from laxity.cli.exit_codes import AWAY, NOT_FOUND, CommandError
from laxity.cli.render.top import policy_lines
from laxity_lab.policy_training.journal_command import read_start
from laxity_lab.policy_training.registry_commands import describe_version
from laxity_lab.policy_training.train_policy_command import register_policy
from laxity_lab.provisioner_training.train_command import register
from laxity_profiler.registry.mlflow_registry import Registry
from laxity_profiler.registry.registered_files import move_alias
from laxity_scheduler.learned.weights_file import load_policy
from laxity_scheduler.process.open_policies import open_policy, read_alias
from laxity_scheduler.service.learned_models import LearnedModels, ModelAwayError
from laxity_scheduler.service.policy_in_force import PolicyInForce
from laxity_scheduler.store.store import Store
from tests.learn.test_policy_in_force import save
from tests.support.policy_registry import (
    ADDRESS,
    AWAY_TEXT,
    REGISTRY,
    add,
    make_registry,
    mlflow_away,
    settings_of,
    store_of,
)

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def registry(tmp_path: Path, blank_mlflow: Path) -> None:
    make_registry(tmp_path, blank_mlflow)


def test_an_alias_puts_versions_in_force_and_rolls_them_back_while_the_service_runs(
    tmp_path: Path,
) -> None:
    add(tmp_path, save(tmp_path / "one.npz", lazy=True, teacher="drf"), slowdown=0.9)
    settings = settings_of(tmp_path, policy=ADDRESS)
    store = Store.open(settings.store_url)
    policies = open_policy(settings, store)
    policies.begin_cycle()
    names = [policies.name]
    add(tmp_path, save(tmp_path / "two.npz", lazy=False), slowdown=0.8)
    for version in ("2", "1"):
        move_alias(store_of(tmp_path), "widths", "champion", version)
        assert read_alias(settings, policies) == 1
        policies.begin_cycle()
        names.append(policies.name)
    store.close()
    assert names == ["models:/widths/1", "models:/widths/2", "models:/widths/1"]
    assert policies.model is not None
    assert policies.model.teacher == "drf"


def test_where_mlflow_is_away_the_teacher_decides_until_it_answers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_of(tmp_path, policy=ADDRESS)
    store = Store.open(settings.store_url)
    with mlflow_away(tmp_path), caplog.at_level(logging.WARNING):
        policies = open_policy(settings, store)
        policies.begin_cycle()
    assert policies.name == "optimus_with_promises"
    assert AWAY_TEXT in policies.fallback
    assert any(AWAY_TEXT in text for text in caplog.messages)
    add(tmp_path, save(tmp_path / "one.npz", lazy=False), slowdown=0.9)
    read_alias(settings, policies)
    policies.begin_cycle()
    store.close()
    assert (policies.name, policies.fallback) == ("models:/widths/1", "")


def test_while_mlflow_is_away_the_version_that_decides_goes_on(tmp_path: Path) -> None:
    add(tmp_path, save(tmp_path / "one.npz", lazy=False), slowdown=0.9)
    store = Store.open(f"sqlite:///{tmp_path}/laxity.db")
    settings = settings_of(tmp_path, policy=ADDRESS)
    policies = open_policy(settings, store)
    policies.begin_cycle()
    with mlflow_away(tmp_path), pytest.raises(ModelAwayError):
        read_alias(settings, policies)
    policies.begin_cycle()
    store.close()
    assert policies.name == "models:/widths/1"


def test_a_restart_while_mlflow_is_away_goes_on_with_the_version_that_the_alias_named_last(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add(tmp_path, save(tmp_path / "one.npz", lazy=True, teacher="drf"), slowdown=0.9)
    add(tmp_path, save(tmp_path / "two.npz", lazy=False), slowdown=0.8)
    here = settings_of(tmp_path, policy=ADDRESS)
    store = Store.open(here.store_url)
    open_policy(here, store)
    move_alias(store_of(tmp_path), "widths", "champion", "1")
    open_policy(here, store)  # now the alias names version 1, and 2 is kept as well
    with mlflow_away(tmp_path), caplog.at_level(logging.WARNING):
        policies = open_policy(here, store)
        policies.begin_cycle()
    assert (policies.name, policies.fallback) == ("models:/widths/1", "")
    told = policies.view()
    assert str(told["stale"]).startswith(f"it was {ADDRESS} when MLflow last answered")
    assert AWAY_TEXT in caplog.text
    (line,) = policy_lines({"learned": told})
    assert "models:/widths/1 decides: it was" in line.plain
    read_alias(here, policies)
    policies.begin_cycle()
    store.close()
    assert (policies.name, policies.view()["stale"]) == ("models:/widths/1", "")


def test_a_new_pod_has_the_last_known_version_from_the_store_while_mlflow_is_away(
    tmp_path: Path,
) -> None:
    add(tmp_path, save(tmp_path / "one.npz", lazy=True, teacher="drf"), slowdown=0.9)
    here = settings_of(tmp_path, policy=ADDRESS)
    store = Store.open(here.store_url)
    open_policy(here, store)
    pod = replace(here, home=tmp_path / "pod")
    with mlflow_away(tmp_path):
        policies = open_policy(pod, store)
        policies.begin_cycle()
    assert (policies.name, policies.fallback) == ("models:/widths/1", "")
    assert str(policies.view()["stale"]).startswith(f"it was {ADDRESS} when MLflow last answered")
    store.close()


def test_what_the_store_could_not_keep_it_keeps_when_the_alias_is_asked_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add(tmp_path, save(tmp_path / "one.npz", lazy=True), slowdown=0.9)
    settings = settings_of(tmp_path, policy=ADDRESS)
    store = Store.open(settings.store_url)
    with store.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE policy_models RENAME TO away")
    policies = open_policy(settings, store)
    policies.begin_cycle()
    assert policies.name == "models:/widths/1"
    assert "models:/widths/1 is not in the store yet" in caplog.text
    with store.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE away RENAME TO policy_models")
    read_alias(settings, policies, store)
    assert len(store.load_policy_models("models:/widths/1")) == 1
    with mlflow_away(tmp_path):
        again = open_policy(settings, store)
        again.begin_cycle()
    assert again.name == "models:/widths/1"
    store.close()


def test_where_the_kept_weights_are_gone_the_teacher_decides(tmp_path: Path) -> None:
    add(tmp_path, save(tmp_path / "one.npz", lazy=True), slowdown=0.9)
    here = settings_of(tmp_path, policy=ADDRESS)
    store = Store.open(here.store_url)
    open_policy(here, store)
    with store.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM policy_models")
    with mlflow_away(tmp_path):
        policies = open_policy(here, store)
        policies.begin_cycle()
    store.close()
    assert policies.name == "optimus_with_promises"
    assert AWAY_TEXT in policies.fallback


def test_a_version_that_is_no_policy_is_refused_with_the_reason_and_the_teacher_decides(
    tmp_path: Path,
) -> None:
    bad = tmp_path / "bad.npz"
    bad.write_text("no weights")
    add(tmp_path, bad, slowdown=0.9)
    store = Store.open(f"sqlite:///{tmp_path}/laxity.db")
    policies = open_policy(settings_of(tmp_path, policy=f"learned:{ADDRESS}"), store)
    policies.begin_cycle()
    store.close()
    assert policies.name == "optimus_with_promises"
    assert "is no policy of version 1" in policies.fallback


def test_a_version_that_was_fetched_decides_again_without_mlflow(tmp_path: Path) -> None:
    add(tmp_path, save(tmp_path / "one.npz", lazy=False), slowdown=0.9)
    store = Store.open(f"sqlite:///{tmp_path}/laxity.db")
    model = LearnedModels(store_of(tmp_path), store).read(ADDRESS)
    assert model is not None
    shutil.rmtree(tmp_path / REGISTRY)
    offline = LearnedModels(store=store)
    assert offline.read(model.name) == model
    with pytest.raises(ModelAwayError, match="models:/ needs MLflow"):
        offline.read(ADDRESS)
    store.close()


def test_versions_are_listed_with_figures_and_promoted_by_commands(tmp_path: Path) -> None:
    add(tmp_path, save(tmp_path / "one.npz", lazy=True), slowdown=0.9)
    add(tmp_path, save(tmp_path / "two.npz", lazy=False), slowdown=0.8)
    app = typer.Typer()
    register(app)
    place = ("--tracking-uri", store_of(tmp_path))
    answer = CliRunner().invoke(app, ["train", "promote", "widths", "1", *place])
    assert answer.exit_code == 0, answer.output
    listed = CliRunner().invoke(app, ["train", "versions", "widths", "--json", *place])
    assert json.loads(listed.stdout) == [
        {"version": "1", "aliases": ["champion"], "figures": {"slowdown": 0.9}},
        {"version": "2", "aliases": [], "figures": {"slowdown": 0.8}},
    ]
    absent = CliRunner().invoke(app, ["train", "promote", "widths", "7", *place])
    assert isinstance(absent.exception, CommandError)
    assert absent.exception.code == NOT_FOUND
    assert "version=7" in str(absent.exception)
    unknown = CliRunner().invoke(app, ["train", "versions", "depths", *place])
    assert isinstance(unknown.exception, CommandError)
    assert unknown.exception.code == NOT_FOUND
    nowhere = ("--tracking-uri", f"sqlite:///{tmp_path}/none/mlflow.db")
    away = CliRunner().invoke(app, ["train", "versions", "widths", *nowhere])
    assert isinstance(away.exception, CommandError)
    assert away.exception.code == AWAY


def test_the_page_of_a_version_says_what_it_was_trained_on_and_its_figures(
    tmp_path: Path,
) -> None:
    add(tmp_path, save(tmp_path / "one.npz", lazy=True), slowdown=0.91234)
    client = Registry(store_of(tmp_path)).client
    version = client.get_model_version("widths", "1")
    assert version.description == "Trained: teacher drf."
    assert version.tags["slowdown"] == "0.9123"
    assert set(version.tags) == {"slowdown", "laxity.digest"}


def test_the_page_of_a_version_from_a_journal_says_in_words_data_figures_and_how_to_promote(
    tmp_path: Path,
) -> None:
    file = save(tmp_path / "one.npz", lazy=True)
    about = {"teacher": "optimus", "seed": 4, "improved_by": "none", "journal": "cycles 1 to 80"}
    figures = {"held_out_cycles": 20.0, "held_out_differing": 3.0, "held_out_choices": 40.0}
    figures |= {"held_out_right": 0.9, "held_out_gain": -0.25}
    place = ("challenger", store_of(tmp_path))
    register_policy("widths", file, about, figures, place)
    client = Registry(store_of(tmp_path)).client
    text = client.get_model_version("widths", "1").description or ""
    assert text.split("\n\n") == [
        (
            "Trained from random weights. It imitated what decided in a service's journal, cycles 1 to 80. "
            "Seed 4. Its teacher, who decides where it is caught: optimus."
        ),
        (
            "On the journal's last 20 cycles, held out, it wants other widths in 3, and chooses as was "
            "decided in 90.0% of 40 choices; its widths would have trained 0.75 times as much (predicted)."
        ),
        "To promote it: `laxity train promote widths 1`",
    ]
    assert "laxity train versions widths" in client.get_registered_model("widths").description


def test_the_page_of_a_version_from_tables_names_teacher_improvement_and_both_figures() -> None:
    about = {"teacher": "drf", "seed": 1, "improved_by": "evolution", "tables": "mine"}
    figures = {"choices": 900, "right_on_worlds_held_out": 0.98, "rounds": 60}
    figures |= {"slowdown_at_first": 0.91, "slowdown": 0.86}
    text = describe_version("widths", "3", about | {"reward": "jct"}, figures)
    assert "`laxity train promote widths 3`" in text
    assert "It imitated drf in clusters simulated from the tables mine." in text
    assert "evolution improved it for completion times, 60 rounds on the tables mine." in text
    assert "it chose as its teacher in 98.0% of the choices" in text
    assert "0.86 on validation worlds, 0.91 before improvement" in text


def test_a_net_that_starts_from_other_weights_names_them_and_whom_it_is_compared_with() -> None:
    about = {"teacher": "none", "seed": 1, "start": "models:/widths/1", "journal": "cycles 1 to 9"}
    text = describe_version("widths", "3", about, {})
    assert text.startswith("Trained on from models:/widths/1.")
    assert "Its teacher, who decides where it is caught: optimus." in text


def test_the_cluster_says_what_a_policy_with_promises_is() -> None:
    learned = {"learned": "models:/widths/2", "fallback": "too slow", "teacher": "drf"}
    lines = policy_lines({"policy": "drf_with_promises", "learned": learned})
    assert [line.plain for line in lines] == [
        "models:/widths/2 does not decide: too slow",
        "drf_with_promises decides: promises first, drf's rule for the rest",
    ]


def test_training_on_from_an_alias_names_the_version_that_it_was(tmp_path: Path) -> None:
    add(tmp_path, save(tmp_path / "one.npz", lazy=True), slowdown=0.9)
    net, name = read_start(ADDRESS, store_of(tmp_path))
    assert name == "models:/widths/1"
    assert (net.weights[0] == load_policy(tmp_path / "one.npz").net.weights[0]).all()
    with pytest.raises(CommandError, match="fifo has no weights"):
        read_start("fifo", store_of(tmp_path))


def test_other_policies_are_no_models(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/laxity.db")
    policies: PolicyInForce = open_policy(settings_of(tmp_path, policy="fifo"), store)
    store.close()
    assert (policies.name, policies.model) == ("fifo", None)


@pytest.mark.slow
def test_a_new_pod_without_mlflow_has_the_version_that_decided_before(
    postgres_url: str, tmp_path: Path
) -> None:
    add(tmp_path, save(tmp_path / "one.npz", lazy=True), slowdown=0.9)
    here = settings_of(tmp_path, policy=ADDRESS)
    store = Store.open(postgres_url)
    open_policy(here, store)
    store.close()
    pod = replace(here, home=tmp_path / "pod")
    again = Store.open(postgres_url)
    with mlflow_away(tmp_path):
        policies = open_policy(pod, again)
        policies.begin_cycle()
    bodies = again.load_policy_models("models:/widths/1")
    again.close()
    assert policies.name == "models:/widths/1"
    assert policies.model is not None
    assert "it was models:/widths@champion when MLflow last answered" in policies.model.stale
    assert bodies == [(tmp_path / "one.npz").read_bytes()]
