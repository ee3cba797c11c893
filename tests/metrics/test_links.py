"""Links in Markdown lead to files and headings that exist."""

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.metrics.__main__ import ROOT

URLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
HERE = f"{URLS['Homepage']}/blob/main/"
HIDDEN = {".git", ".venv", ".laxity"}  # not ours
PAGES = [p for p in sorted(ROOT.rglob("*.md")) if not HIDDEN & set(p.relative_to(ROOT).parts)]


@cache
def tokens(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))


def links(page: Path) -> Iterator[str]:
    """Targets of links and images; code has none."""
    for block in tokens(page):
        for token in block.children or []:
            target = token.attrs.get("href", token.attrs.get("src"))
            if target:
                yield unquote(str(target))


@cache
def anchors(page: Path) -> set[str]:
    """Names of headings as GitHub makes them: a repeated one gets a number."""
    names: list[str] = []
    for opening, heading in zip(tokens(page), tokens(page)[1:], strict=False):
        if opening.type == "heading_open":
            text = "".join(child.content for child in heading.children or [])
            name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            names.append(f"{name}-{names.count(name)}" if name in names else name)
    return set(names)


def problem(page: Path, link: str) -> str:
    """What is wrong with a link; nothing for one to another site."""
    inside = link.replace(f"{URLS['Homepage']}/raw/main/", HERE).removeprefix(HERE)
    if inside == link and re.match(r"[a-z]+:", link):
        return ""
    path, _, anchor = inside.partition("#")
    target = (ROOT if inside != link else page.parent) / path if path else page
    if not target.exists():
        return f"{link}: no such file"
    if anchor and anchor not in anchors(target):
        return f"{link}: no such heading"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(ROOT).as_posix() for page in PAGES])
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert [text for link in links(page) if (text := problem(page, link))] == []


def test_links_that_leave_the_readme_are_absolute_for_pypi() -> None:
    readme = list(links(ROOT / "README.md"))
    assert [link for link in readme if not link.startswith(("https://", "#"))] == []
    assert sum(link.startswith(HERE) for link in readme) > 10


def test_addresses_of_the_project_lead_to_its_repository_and_files() -> None:
    templates = (ROOT / ".github/ISSUE_TEMPLATE/config.yml").read_text()
    addresses = [*URLS.values(), *re.findall(r"url: (\S+)", templates)]
    assert [url for url in addresses if not url.startswith(URLS["Homepage"])] == []
    assert [url for url in addresses if problem(ROOT / "README.md", url)] == []


@pytest.mark.parametrize(
    ("link", "wrong"),
    [
        ("other.md", ""),
        ("other.md#a-second-one", ""),
        ("#twice-1", ""),
        ("#twice-2", "#twice-2: no such heading"),
        ("#in-code", "#in-code: no such heading"),
        ("other.md#twice", "other.md#twice: no such heading"),
        ("none.md", "none.md: no such file"),
        (f"{HERE}docs/README.md", ""),
        (f"{URLS['Homepage']}/raw/main/docs/page.png", ""),
        (
            f"{URLS['Homepage']}/raw/main/none.png",
            f"{URLS['Homepage']}/raw/main/none.png: no such file",
        ),
        (f"{HERE}docs/none.md", f"{HERE}docs/none.md: no such file"),
        ("https://example.org/none.md", ""),
    ],
)
def test_a_link_to_what_is_gone_is_found(link: str, wrong: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        f"# Twice\n\n```\n# In code\n[a](none.md)\n```\n\n## `Twice`\n\n[text]({link})\n"
    )
    (tmp_path / "other.md").write_text("## A *second* one!\n")

    assert list(links(page)) == [link]
    assert problem(page, link) == wrong
