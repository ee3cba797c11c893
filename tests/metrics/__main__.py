"""Print counts of the code's structure beside their goals: `make metrics`.

`make metrics ARGS=--list` also lists what each figure counts; names of folders after it are the only
ones that are counted. The exit status is 1 only where a
rule of tests/metrics/rules.py is broken more often than today.
"""

import argparse
import sys
from pathlib import Path

from tests.metrics.rules import broken_rules, newly_broken
from tests.metrics.source import read_files
from tests.metrics.table import table

ROOT = Path(__file__).parents[2]
ELSEWHERE = (
    "speed: laxity bench (README); time of the tests: .laxity/test/*.xml; plans: make oracle"
)


def main() -> int:
    """Print the table; the exit status."""
    parser = argparse.ArgumentParser(prog="make metrics", description=__doc__)
    parser.add_argument("folders", nargs="*", help="count the code below these folders only")
    parser.add_argument("--list", action="store_true", help="list what each figure counts")
    options = parser.parse_args()
    files = [file for file in read_files(ROOT) if is_below(file.path, options.folders)]
    broken = broken_rules(ROOT, files)
    problems = newly_broken(broken)
    lines = [f"{'':40} {'today':>8}  goal"]
    for row in table(ROOT, files, broken):
        lines.append(f"{row.name:40} {row.value:>8}  {row.goal}".rstrip())
        lines += [f"    {place}" for place in row.places if options.list]
    print(*lines, ELSEWHERE, *problems, sep="\n")  # noqa: T201 - a command
    return bool(problems)


def is_below(path: Path, folders: list[str]) -> bool:
    return not folders or any(path.is_relative_to(folder) for folder in folders)


if __name__ == "__main__":
    sys.exit(main())
