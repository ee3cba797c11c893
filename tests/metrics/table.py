"""The table of `make metrics`: each figure beside its goal, and the offending names per file."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from tests.metrics import names
from tests.metrics.imports import folders_without_contract
from tests.metrics.source import FLOORS, SourceFile, length


class Row(NamedTuple):
    """A figure, its goal in words, and what it counts where `--list` can show it."""

    name: str
    value: str
    goal: str = ""
    places: tuple[str, ...] = ()


def table(root: Path, files: list[SourceFile], broken: Mapping[str, list[str]]) -> Iterator[Row]:
    floors = [file for file in files if file.folder in FLOORS]
    yield from _size_rows(files, floors)
    yield from _name_rows(floors)
    yield from _repetition_rows(floors)
    without = folders_without_contract(root)
    yield Row("folders without a layers contract", str(len(without)), "0", tuple(without))
    for rule, places in broken.items():
        yield Row(rule, str(len(places)), "0", tuple(places))


def _size_rows(files: list[SourceFile], floors: list[SourceFile]) -> Iterator[Row]:
    for floor in FLOORS:
        goal = "<= 17,500" if floor == "scheduler" else ""
        yield Row(f"lines in {floor}", f"{_lines(files, floor):,}", goal)
    tests = [file for file in files if file.folder == "tests"]
    yield Row("lines without tests", f"{_lines(files) - _lines(tests):,}", "<= 41,000")
    yield Row("lines of tests", f"{_lines(tests):,}", "<= 34,000")
    functions = [f.name for file in tests for f in file.functions]
    yield Row("test functions", f"{sum(name.startswith('test_') for name in functions):,}")
    yield Row("files without tests", f"{len(floors):,}")
    longest_file = max(floors, key=lambda file: file.lines)
    yield Row("longest file", f"{longest_file.lines}", "<= 400", (str(longest_file.path),))
    size, place = max(
        (length(f), f"{file.path}: {f.name}") for file in floors for f in file.functions
    )
    yield Row("longest function", f"{size}", "<= 60", (place,))


def _lines(files: list[SourceFile], folder: str | None = None) -> int:
    return sum(file.lines for file in files if folder in {None, file.folder})


def _name_rows(floors: list[SourceFile]) -> Iterator[Row]:
    participles = {file: names.participle_functions(file) for file in floors}
    yield _row_per_file("functions named by a bare participle", "< 20", participles)
    words = fmean(names.word_count(f) for file in floors for f in names.named_functions(file))
    yield Row("words per function name", f"{words:.2f}", ">= 1.70")
    vague = {file: names.vague_locals(file) for file in floors}
    yield _row_per_file("vague names of locals", "< 100", vague)


def _row_per_file(name: str, goal: str, found: Mapping[SourceFile, list[str]]) -> Row:
    places = tuple(f"{file.path}: {' '.join(sorted(set(n)))}" for file, n in found.items() if n)
    return Row(name, str(sum(map(len, found.values()))), goal, places)


def _repetition_rows(floors: list[SourceFile]) -> Iterator[Row]:
    repeated = names.repeated_file_names(floors)
    places = tuple(f"{name}: {count} times" for name, count in sorted(repeated.items()))
    yield Row("file names used more than once", str(len(repeated)), "", places)
