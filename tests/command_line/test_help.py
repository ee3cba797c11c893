import json
import os
import resource
import shutil
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from laxity.cli import lazy_commands as floors
from laxity.cli.exit_codes import CommandError
from laxity.cli.lazy_commands import FLOOR_COMMANDS, FloorCommand
from laxity.cli.main import app
from tests.support.processes import run_command

HEAVY = (
    "prefect",
    "mlflow",
    "kubernetes",
    "sqlmodel",
    "fastapi",
    "sklearn",
    "numpy",
    "yaml",
    "rich",
)
FLOORS = ("laxity_profiler", "laxity_scheduler", "laxity_lab", "laxity_k8s")


def laxity(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "laxity.cli.main", *arguments]
    return run_command(*command, timeout=60)


def test_help_is_there_in_less_than_three_tenths_of_a_second() -> None:
    """Counted in CPU time of the best of a few: what it takes when the machine has nothing else."""
    taken = []
    for _ in range(5):
        began = children_s()
        shown = laxity("--help")
        taken.append(children_s() - began)

    assert shown.returncode == 0
    assert min(taken) < 0.3


def children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize(
    ("typed", "called"),
    [("why", "explain"), ("list", "ls"), ("delete", "cancel"), ("watch", "top")],
)
def test_what_other_tools_call_it_is_told_by_its_name_here(typed: str, called: str) -> None:
    said = CliRunner().invoke(app, [typed, "job"])

    assert said.exit_code == 2
    assert f"No such command '{typed}': here it is called '{called}'" in said.output
    assert not set(floors.CALLED) & set(floors.BY_NAME)


def loaded_by(*arguments: str) -> set[str]:
    """The top-level modules that this command has imported when it has ended well."""
    code = (
        "import sys, json\n"
        "from laxity.cli.main import app\n"
        f"try: app({list(arguments)}, standalone_mode=False)\n"
        "finally: print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(shown.stdout.splitlines()[-1]))


def test_help_imports_no_other_floor_and_nothing_heavy() -> None:
    assert not loaded_by("--help").intersection(HEAVY + FLOORS)


@pytest.mark.parametrize("command", ["bench", "simulate"])
def test_who_asks_what_can_be_measured_or_simulated_waits_for_no_database(command: str) -> None:
    loaded = loaded_by(command, "--help")

    assert "laxity_lab" in loaded
    assert not loaded & {"pandas", "scipy", "sklearn", "sqlalchemy", "sqlmodel"}


def test_help_names_every_command_with_its_first_sentence() -> None:
    shown = CliRunner().invoke(app, ["--help"])

    for name in ("submit", "ls", "top", "show", "logs", "explain", "whatif", "accept", "amend"):
        assert f"\n  {name} " in shown.stdout
    for command in FLOOR_COMMANDS:
        assert command.help in shown.stdout


def test_help_documents_the_exit_codes() -> None:
    shown = CliRunner().invoke(app, ["--help"])

    assert "3 the deadline was refused" in " ".join(shown.stdout.split())


def test_a_misspelled_command_is_answered_with_the_nearest_one() -> None:
    shown = CliRunner().invoke(app, ["submti"])

    assert shown.exit_code == 2
    assert "Did you mean 'submit'" in shown.output


def test_the_version_is_shown() -> None:
    shown = CliRunner().invoke(app, ["--version"])

    assert shown.stdout.startswith("laxity 0.")


def register(there: typer.Typer) -> None:
    """What another floor offers as its entry point."""

    @there.command("replay")
    def replay(journal: str, *, fast: bool = False) -> None:
        typer.echo(f"replayed {journal} {'fast' if fast else 'slowly'}")


def test_a_command_of_another_floor_runs_with_its_own_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = EntryPoint("service", f"{__name__}:register", "laxity.commands")
    monkeypatch.setattr(EntryPoint, "load", lambda _: register)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [entry])

    shown = CliRunner().invoke(app, ["replay", "journal.db", "--fast"])

    assert shown.output == "replayed journal.db fast\n"


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        pytest.param([], "not installed here", id="the floor is not there"),
        pytest.param(
            [EntryPoint("service", "laxity_no_such.commands:register", "laxity.commands")],
            "cannot be loaded",
            id="the floor cannot be imported",
        ),
    ],
)
def test_a_missing_floor_is_an_error_that_says_what_to_install(
    entries: list[Any], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: entries)

    with pytest.raises(CommandError, match=rf"{problem}.*pip install"):
        floors.load_command(FloorCommand("up", "service", floors.SERVICE, "Start it."))


def test_an_installed_package_hides_the_demo_and_says_where_it_is(tmp_path: Path) -> None:
    package = Path(floors.__file__).parents[1]
    shutil.copytree(package, tmp_path / "laxity", ignore=shutil.ignore_patterns("__pycache__"))

    def installed(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return run_command(
            sys.executable,
            "-m",
            "laxity.cli.main",
            *arguments,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            cwd=tmp_path,
        )

    assert " demo " not in installed("--help").stdout
    demo = installed("demo")
    assert (demo.returncode, "clone it, then make demo" in demo.stderr) == (1, True)


def test_options_of_up_name_what_they_take() -> None:
    shown = CliRunner().invoke(app, ["up", "--help"], env={"COLUMNS": "160"}).output

    assert "NAMESPACE=GPU_HOURS" in shown
    assert "list[" not in shown


@pytest.mark.parametrize("group", ["bench", "train"])
def test_help_of_a_group_cuts_no_sentence(group: str) -> None:
    shown = CliRunner().invoke(app, [group, "--help"], env={"COLUMNS": "80"}).output

    assert "..." not in shown.partition("Commands:")[2]
    assert "Commands:" in shown
