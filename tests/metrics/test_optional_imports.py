"""`make check` says the same with and without the libraries that `make torch` adds."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions

from tests.metrics.__main__ import ROOT
from tests.metrics.source import SourceFile, read_files

OWN = {
    "__main__",
    "benchmarks",
    "examples",
    "laxity",
    "laxity_profiler",
    "laxity_scheduler",
    "laxity_lab",
}
OWN |= {"laxity_k8s", "studies", "tests"}


def imported_roots(file: SourceFile) -> set[str]:
    roots = set[str]()
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Import):
            roots |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            roots.add(node.module.partition(".")[0])
    return roots


def test_an_import_that_is_not_locked_may_be_missing_for_the_type_checker() -> None:
    locked = set(re.findall(r"(?m)^([\w.-]+)==", (ROOT / "requirements.lock").read_text()))
    overrides = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    may_be_missing = {name.partition(".")[0] for rule in overrides for name in rule["module"]}
    distributions = packages_distributions()
    problems = [
        f"{file.path} imports {root}"
        for file in read_files(ROOT)
        if not file.is_in("notebooks/") or file.is_in("notebooks/studies/")
        for root in sorted(imported_roots(file) - OWN - may_be_missing - sys.stdlib_module_names)
        if not {name.lower().replace("_", "-") for name in distributions.get(root, ())} & locked
    ]
    assert not problems, problems
