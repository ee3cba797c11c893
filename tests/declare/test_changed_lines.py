"""How many lines a library needs: the tables of README and docs say what the examples have."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "flows/examples/frameworks"
LIBRARIES = {
    "Transformers": "transformers",
    "Lightning": "lightning",
    "Keras 3": "keras",
    "xgboost": "xgboost",
    "LightGBM": "lightgbm",
}
COMMON = re.compile(r"from laxity import Training, deadline_flow|@deadline_flow\(")


def marked_lines(library: str) -> list[str]:
    lines = (EXAMPLES / f"{library}_flow.py").read_text().splitlines()
    return [line for line in lines if line.endswith("# laxity")]


@pytest.mark.parametrize(("title", "library"), LIBRARIES.items())
def test_page_says_how_many_lines_the_example_marks(title: str, library: str) -> None:
    rows = (ROOT / "docs/frameworks.md").read_text().splitlines()
    (row,) = (row for row in rows if row.startswith(f"| [{title}]"))

    assert int(row.split("|")[2]) == len(marked_lines(library))


def test_readme_has_the_same_numbers() -> None:
    readme = (ROOT / "README.md").read_text().splitlines()
    at = next(at for at, row in enumerate(readme) if row.startswith("| a script as it is |"))
    titles, numbers = ([cell.strip() for cell in readme[n].split("|")[1:-1]] for n in (at, at + 2))

    counted = {title: len(marked_lines(library)) for title, library in LIBRARIES.items()}
    assert dict(zip(titles, map(int, numbers), strict=True)) == {"a script as it is": 0, **counted}


@pytest.mark.parametrize("library", LIBRARIES.values())
def test_each_line_of_an_example_that_names_laxity_is_marked(library: str) -> None:
    text = (EXAMPLES / f"{library}_flow.py").read_text().partition('"""\n\n')[2]
    names = re.compile(r"\blaxity\.|from laxity|\bboosting\b|\bDeadline\b|training\.epoch\b")
    lines = [line for line in text.splitlines() if names.search(line) and not COMMON.search(line)]

    assert lines == marked_lines(library)
