"""Rules that no change may break further, and how often they are broken today.

The numbers may only fall. Whoever lowers a count lowers the number here in the same commit.
"""

from collections.abc import Mapping
from pathlib import Path

from tests.metrics.imports import circles, import_graph, packages_of
from tests.metrics.names import repeated_class_names
from tests.metrics.source import FLOORS, SourceFile, length

LONGEST_FILE = 400
LONGEST_FUNCTION = 60

BROKEN_TODAY = {
    "import circles": 0,
    "files over 400 lines": 0,
    "functions over 60 lines": 0,
    "class names used twice": 0,
}


def broken_rules(root: Path, files: list[SourceFile]) -> dict[str, list[str]]:
    """For each rule the places that break it."""
    files_of_floors = [file for file in files if file.folder in FLOORS]
    return {
        "import circles": [", ".join(c) for c in circles(import_graph(packages_of(root)))],
        "files over 400 lines": [f"{f.path}: {f.lines}" for f in files if f.lines > LONGEST_FILE],
        "functions over 60 lines": [
            f"{f.path}:{function.lineno}: {function.name}, {length(function)}"
            for f in files
            for function in f.functions
            if length(function) > LONGEST_FUNCTION
        ],
        "class names used twice": [
            f"{name}: {', '.join(map(str, paths))}"
            for name, paths in sorted(repeated_class_names(files_of_floors).items())
        ],
    }


def newly_broken(broken: Mapping[str, list[str]]) -> list[str]:
    """A sentence for each rule that is broken more often than today."""
    return [
        f"{rule}: {len(places)}, allowed {BROKEN_TODAY[rule]}:\n  " + "\n  ".join(places)
        for rule, places in broken.items()
        if len(places) > BROKEN_TODAY[rule]
    ]
