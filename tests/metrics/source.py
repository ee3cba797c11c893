"""The Python files of the repository and the functions in them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

FLOORS = ("flows", "profiler", "scheduler", "k8s")
FOLDERS = (*FLOORS, "notebooks", "tests")

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
        return [
            n for n in ast.walk(self.tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
        ]

    @property
    def folder(self) -> str:
        return self.path.parts[0]


def length(function: Function) -> int:
    """Lines of a function without its decorators."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def read_files(root: Path) -> list[SourceFile]:
    return sorted(_files(root), key=lambda file: file.path)


def _files(root: Path) -> Iterator[SourceFile]:
    for folder in FOLDERS:
        for path in (root / folder).rglob("*.py"):
            yield SourceFile(path.relative_to(root), path.read_text(encoding="utf-8"))
