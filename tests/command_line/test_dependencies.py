"""What the code imports is declared, what is declared is imported, and both locks agree."""

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Each floor, and the extras that what runs on it comes with.
FLOORS = {
    "flows/laxity": ("flow", "torch", "mcp", "libraries", "optuna"),
    "profiler/laxity_profiler": ("service", "report"),
    "scheduler/laxity_scheduler": ("service", "report", "compiled"),
    "scheduler/laxity_lab": (
        "service",
        "report",
        "compiled",
        "torch",
        "xgboost",
        "gym",
        "kubernetes",
    ),
    "k8s/laxity_k8s": ("service", "kubernetes"),
}
# Declared, and imported by no line of ours.
UNSEEN = {
    "httptools": "uvicorn reads requests with it where it is installed",
    "psycopg": "SQLAlchemy loads it for a postgresql:// address",
    "tzdata": "zoneinfo reads it where the system has no time zones",
    "mlflow-skinny": "the part of mlflow that a training image has",
}
INSTALLED = packages_distributions()
OWN = {"examples", "laxity", "laxity_profiler", "laxity_scheduler", "laxity_lab", "laxity_k8s"}


def plain(distribution: str) -> str:
    """As package indexes compare names."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def declared(*extras: str) -> set[str]:
    """Distributions that these extras and the base set name."""
    rows = [*PROJECT["dependencies"]]
    for extra in extras:
        rows += PROJECT["optional-dependencies"][extra]
    return {plain(re.split(r"[\[<>=!~; ]", row)[0]) for row in rows}


@cache
def imported(folder: str) -> frozenset[tuple[str, str]]:
    """Top-level modules of others that a floor imports, with the file."""
    found = set()
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [name.name for name in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            for name in {name.partition(".")[0] for name in names}:
                if name not in sys.stdlib_module_names and name not in OWN:
                    found.add((name, path.name))
    return frozenset(found)


def brought(module: str) -> set[str]:
    """Distributions that hold a module; its own name where none is installed (an extra)."""
    return {plain(name) for name in INSTALLED.get(module, [module])}


@pytest.mark.parametrize("folder", FLOORS)
def test_whatever_a_floor_imports_is_declared_for_it(folder: str) -> None:
    known = declared(*FLOORS[folder])
    undeclared = {row for row in imported(folder) if not brought(row[0]) & known}
    assert not undeclared


@pytest.mark.parametrize(
    "extra",
    [
        "",
        "flow",
        "service",
        "kubernetes",
        "compiled",
        "report",
        "torch",
        "xgboost",
        "gym",
        "mcp",
        "libraries",
        "optuna",
    ],
)
def test_whatever_is_declared_is_imported(extra: str) -> None:
    used = {name for folder in FLOORS for module, _ in imported(folder) for name in brought(module)}
    wanted = declared(extra) - declared() if extra else declared()
    assert wanted
    assert wanted - used <= UNSEEN.keys()


def test_every_extra_is_checked_here_or_made_of_others() -> None:
    used = {extra for extras in FLOORS.values() for extra in extras}
    assert PROJECT["optional-dependencies"].keys() == used | {"all"}


def test_the_lock_has_the_versions_of_the_constraints_and_a_hash_for_each() -> None:
    wanted = [row for row in (ROOT / "constraints.txt").read_text().splitlines() if row[0] != "#"]
    locked: dict[str, int] = {}
    for row in (ROOT / "requirements.lock").read_text().splitlines():
        if row.startswith("    --hash=sha256:"):
            locked[next(reversed(locked))] += 1
        elif row[0] != "#":
            locked[row.removesuffix(" \\")] = 0
    assert list(locked) == wanted
    assert all(locked.values())
