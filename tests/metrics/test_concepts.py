"""The pages in docs/concepts name files, functions and sections that exist."""

import ast
import re
from pathlib import Path

import pytest

from tests.metrics.__main__ import ROOT
from tests.metrics.source import read_files

CONCEPTS = ROOT / "docs/concepts"
WALKS = 6
FILE = re.compile(r"`([\w./-]+\.py)`")
STEP = re.compile(r"^\d+\. `(?P<file>[\w/]+\.py)`:(?P<text>.*)$", re.MULTILINE)
NAMED_IN = re.compile(r"((?:`[\w.]+`(?:, | and | ))+)in `([\w/]+\.py)`")
CITATION = re.compile(r"algorithms\.md (\d+(?:\.\d+)?)((?:(?:, | and )\d+\.\d+)*)")


def defined_names(path: Path) -> set[str]:
    """Functions, classes, methods as `Class.method`, and constants of a module; what it imports."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{m.name}" for m in node.body if isinstance(m, ast.FunctionDef)}
        if isinstance(node, ast.ImportFrom):
            names |= {alias.name for alias in node.names}
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


@pytest.mark.parametrize("page", sorted(path.name for path in CONCEPTS.glob("*.md")))
def test_files_named_by_a_concepts_page_exist(page: str) -> None:
    files = FILE.findall((CONCEPTS / page).read_text(encoding="utf-8"))
    gone = sorted({file for file in files if not (ROOT / file).is_file()})
    assert gone == [], f"docs/concepts/{page} names files that are gone; say where they went"


def missing_names(names: str, file: str) -> list[str]:
    """Of names in backticks, those that a file does not define."""
    defined = defined_names(ROOT / file) if (ROOT / file).is_file() else set()
    return [
        f"{file} has no {name}" for name in re.findall(r"`([\w.]+)`", names) if name not in defined
    ]


def test_each_walk_names_functions_that_its_files_define() -> None:
    page = (CONCEPTS / "architecture.md").read_text(encoding="utf-8")
    walks = page.partition("## Six walks")[2]
    steps = list(STEP.finditer(walks))
    gone = [line for step in steps for line in missing_names(step["text"], step["file"])]
    assert gone == [], "docs/concepts/architecture.md: write the names of today"
    assert walks.count("\n### ") == WALKS
    assert len(steps) == len(re.findall(r"^\d+\. ", walks, re.MULTILINE))


def test_the_algorithms_page_names_what_its_files_define() -> None:
    page = (CONCEPTS / "algorithms.md").read_text(encoding="utf-8")
    found = NAMED_IN.findall(page)
    gone = [line for names, file in found for line in missing_names(names, file)]
    assert gone == [], "docs/concepts/algorithms.md: write the names of today"
    assert len(found) > 4


def test_sections_cited_by_docstrings_stand_in_the_algorithms_page() -> None:
    page = (CONCEPTS / "algorithms.md").read_text(encoding="utf-8")
    sections = set(re.findall(r"^##+ (\d+(?:\.\d+)?) ", page, re.MULTILINE))
    cited = {
        (str(file.path), number)
        for file in read_files(ROOT)
        for citation in CITATION.finditer(file.text)
        for number in re.findall(r"\d+(?:\.\d+)?", "".join(citation.groups()))
    }
    assert len(cited) > 20
    assert {(path, number) for path, number in cited if number not in sections} == set()


def test_every_page_is_named_by_the_index_of_the_documentation() -> None:
    index = (ROOT / "docs/README.md").read_text()
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    linked = set(re.findall(r"\]\(([\w/.-]+\.md)\)", index))
    assert pages - linked == {"README.md"}
