"""The figures of the code's structure, all better where smaller."""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import grimp

from tests.metrics.source import FLOORS, SourceFile, read_files

DEMO = "flows/examples/demo/"
LAB = "scheduler/laxity_lab/"
OF_THE_LAB = ("bench", "simulate", "studies")  # folders that belong there
IMPORT_A_DECISION = "import sys, laxity_scheduler.policies.qos; print(*sys.modules)"


IN_NO_WHEEL = ("notebooks/studies/", "benchmarks/")  # what stands on the lab and only authors run


class Figure(NamedTuple):
    """A number, and what it counts where that can be listed."""

    value: int
    places: tuple[str, ...] = ()


def measure_figures(root: Path) -> dict[str, Figure]:
    """All figures by name, in the order in which they are printed."""
    files = read_files(root)
    floors = [file for file in files if file.is_in(*FLOORS)]
    read = files_of_a_decision()
    decision = [file for file in floors if file.path.as_posix() in read]
    classes = ((n.name, f) for f in floors for n in f.tree.body if isinstance(n, ast.ClassDef))
    return {
        "lines that a cluster runs": _add_lines(
            file for file in floors if not file.is_in(DEMO, LAB)
        ),
        "lines of laxity_lab and of what moves there": _add_lines(
            file for file in floors if file.is_in(LAB)
        ),
        "of these, lines that still have to move": _add_lines(
            file
            for file in floors
            if not file.is_in(LAB) and not set(OF_THE_LAB).isdisjoint(file.path.parts)
        ),
        "lines of tests": _add_lines(file for file in files if file.is_in("tests/")),
        "lines of JavaScript and CSS": _add_lines(
            file for kind in ("*.js", "*.css") for file in read_files(root, kind)
        ),
        "modules that a default decision reads": _count(str(file.path) for file in decision),
        "lines that a default decision reads": _add_lines(decision),
        "lines of import contracts": Figure(contract_lines(root)),
        "files in the largest folder": _largest(Counter(str(f.path.parent) for f in floors)),
        "file names used twice": _count(repeated((f.path.name, f) for f in floors)),
        "class names used twice": _count(repeated(classes)),
        "import circles": _count(find_circle(import_graph(root))),
        "lines of the longest file": _largest({str(file.path): file.lines for file in files}),
        "lines of the longest function": _largest(
            {
                f"{file.path}: {f.name}": (f.end_lineno or 0) - f.lineno + 1
                for file in files
                for f in file.functions
            }
        ),
    }


def lines_in_no_wheel(root: Path) -> Figure:
    """Lines of studies and benchmarks: printed so that a move out of the lab is seen, without a goal."""
    return _add_lines(file for file in read_files(root) if file.is_in(*IN_NO_WHEEL))


def _add_lines(files: Iterable[SourceFile]) -> Figure:
    """All lines, and those of each folder, the largest first."""
    folders: Counter[str] = Counter()
    for file in files:
        folders[str(file.path.parent)] += file.lines
    return Figure(folders.total(), tuple(f"{name}: {n:,}" for name, n in folders.most_common()))


def _count(places: Iterable[str]) -> Figure:
    listed = tuple(places)
    return Figure(len(listed), listed)


def _largest(sizes: Mapping[str, int]) -> Figure:
    """The largest size, and the five places that come first."""
    first = Counter(sizes).most_common(5)
    return Figure(first[0][1], tuple(f"{name}: {size}" for name, size in first))


def repeated(named: Iterable[tuple[str, SourceFile]]) -> Iterator[str]:
    """Names that several files have; private ones and `__init__.py` are free."""
    paths: dict[str, list[str]] = {}
    for name, file in named:
        paths.setdefault(name, []).append(str(file.path))
    return (
        f"{name}: {', '.join(where)}"
        for name, where in sorted(paths.items())
        if len(where) > 1 and not name.startswith("_")
    )


def files_of_a_decision() -> set[str]:
    """Modules of the scheduler in a fresh interpreter that has imported the default policy."""
    command = [sys.executable, "-I", "-W", "ignore", "-c", IMPORT_A_DECISION]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return {f"scheduler/{name.replace('.', '/')}.py" for name in output.split()}


def contract_lines(root: Path) -> int:
    """Lines of import-linter's contracts, in a file of their own or at the end of pyproject.toml."""
    if (root / ".importlinter").is_file():
        return (root / ".importlinter").read_text().count("\n")
    pyproject = (root / "pyproject.toml").read_text()
    return len("".join(pyproject.partition("[tool.importlinter]")[1:]).splitlines())


def import_graph(root: Path) -> dict[str, set[str]]:
    """Each module's imports, those inside functions and for type checking included."""
    files = (path for floor in FLOORS for path in (root / floor).glob("laxity*/__init__.py"))
    graph = grimp.build_graph(*(path.parent.name for path in files), cache_dir=None)
    return {m: graph.find_modules_directly_imported_by(m) for m in graph.modules}


def find_circle(imports: Mapping[str, set[str]]) -> list[str]:
    """The first circle of modules that import each other; nothing if there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return [" -> ".join(error.args[1])]
    return []
