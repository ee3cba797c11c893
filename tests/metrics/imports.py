"""Import circles between modules, and folders that no `layers` contract holds in order."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import grimp

from tests.metrics.source import FLOORS


def import_graph(packages: tuple[str, ...]) -> dict[str, set[str]]:
    """Each module's imports, those inside functions and for type checking included."""
    graph = grimp.build_graph(packages[0], *packages[1:], cache_dir=None)
    return {m: graph.find_modules_directly_imported_by(m) for m in graph.modules}


def circles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, directly or through others."""
    reach = {module: _reachable(module, imports) for module in imports}
    groups = {frozenset(n for n in reach[m] if m in reach[n]) for m in imports if m in reach[m]}
    return sorted(sorted(group) for group in groups)


def _reachable(module: str, imports: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = [module]
    while waiting:
        new = imports[waiting.pop()] - reached
        reached |= new
        waiting.extend(new)
    return reached


def packages_of(root: Path) -> tuple[str, ...]:
    """The package of each floor."""
    return tuple(
        path.parent.name
        for floor in FLOORS
        for path in sorted((root / floor).glob("laxity*/__init__.py"))
    )


def folders_without_contract(root: Path) -> list[str]:
    """Packages that are neither container nor layer of an import-linter contract.

    A floor's package has to be a container: as a layer it is only placed among the floors.
    """
    pyproject = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = pyproject["tool"]["importlinter"]["contracts"]
    ordered = {name for contract in contracts for name in _packages_ordered_by(contract)}
    return [package for package in _packages(root) if package not in ordered]


def _packages_ordered_by(contract: Mapping[str, object]) -> list[str]:
    """A contract's containers and the layers inside them; for independence, the parent of `*`."""
    if contract["type"] == "independence":
        return [module.removesuffix(".*") for module in _strings(contract["modules"])]
    containers = _strings(contract.get("containers"))
    layers = [
        name.strip("() ")
        for line in _strings(contract.get("layers"))
        for name in re.split("[:|]", line)
    ]
    return [*containers, *(f"{container}.{layer}" for container in containers for layer in layers)]


def _strings(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


def _packages(root: Path) -> list[str]:
    """The packages of all floors, nested ones too."""
    return [
        ".".join(folder.relative_to(root / floor).parts)
        for floor in FLOORS
        for package in sorted((root / floor).glob("laxity*/"))
        for folder in sorted(path.parent for path in package.rglob("__init__.py"))
        if "migrations" not in folder.parts  # Alembic orders them
    ]
