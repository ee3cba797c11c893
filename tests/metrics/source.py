"""The files of the repository, and the functions in those of Python."""

import ast
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

FLOORS = ("flows/", "profiler/", "scheduler/", "k8s/")
FOLDERS = (*FLOORS, "benchmarks/", "notebooks/", "tests/")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class SourceFile:
    """A file of Python; `path` is relative to the repository's root."""

    path: Path
    text: str

    @cached_property
    def lines(self) -> int:
        return self.text.count("\n")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def functions(self) -> list[Function]:
        """All functions and methods, nested ones too."""
        return [n for n in ast.walk(self.tree) if isinstance(n, Function)]

    def is_in(self, *prefixes: str) -> bool:
        """Whether the path begins with one of these texts."""
        return self.path.as_posix().startswith(prefixes)


def read_files(root: Path, pattern: str = "*.py") -> list[SourceFile]:
    paths = sorted(path for folder in FOLDERS for path in (root / folder).rglob(pattern))
    return [SourceFile(path.relative_to(root), path.read_text(encoding="utf-8")) for path in paths]
