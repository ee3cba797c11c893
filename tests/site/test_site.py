"""The documentation site is built strictly, names all that is public, and asks no other host."""

import inspect
import re
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

import laxity
from laxity import names
from laxity_scheduler.model.reasons import TEMPLATES
from tests.metrics.__main__ import ROOT
from tests.site import reference
from tests.site.__main__ import build, write_source
from tests.support.browser import browser

MOST_MEMBERS = 20
BUILTIN = {*dir(ValueError), *dir(object)}


@pytest.fixture(scope="session")
def site() -> Path:
    assert build() == 0
    return ROOT / ".laxity/site"


def members(name: str) -> Iterator[str]:
    thing = getattr(laxity, name)
    yield f"laxity.{name}"
    if inspect.isclass(thing):
        fields = {field for kind in thing.__mro__ for field in inspect.get_annotations(kind)}
        public = {member for member in {*dir(thing), *fields} if not member.startswith("_")}
        yield from (f"laxity.{name}.{member}" for member in public - BUILTIN)


@pytest.mark.slow
def test_every_public_name_is_on_the_python_page(site: Path) -> None:
    page = (site / "reference/python/index.html").read_text()
    wanted = [member for name in laxity.__all__ for member in members(name)]

    assert [name for name in wanted if f'id="{name}"' not in page] == []


def test_the_face_of_a_training_is_small_and_told_to_users() -> None:
    page = (ROOT / "docs/projects.md").read_text()
    training = laxity.Training(1)
    public = {name for name in {*dir(training), *vars(training)} if not name.startswith("_")}

    assert len(public) <= MOST_MEMBERS
    assert {name for name in public if not re.search(rf"`training\.{name}\b", page)} == set()


@pytest.mark.slow
def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))

    assert len(pages) > 40
    assert {page.name: foreign for page in pages if (foreign := foreign_files(page))} == {}


def foreign_files(page: Path) -> list[str]:
    addresses: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            values = dict(attrs)
            is_loaded = tag != "a" and values.get("rel") not in {
                "canonical",
                "edit",
                "prev",
                "next",
            }
            addresses.extend(values.get(key) or "" for key in ("src", "href") if is_loaded)

    Reader().feed(page.read_text())
    return [address for address in addresses if re.match(r"(https?:)?//", address)]


@pytest.mark.browser
def test_a_page_opened_in_a_browser_asks_this_host_only(site: Path, tmp_path: Path) -> None:
    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=site)  # type: ignore[arg-type]

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, browser(tmp_path) as page:
        Thread(target=server.serve_forever, daemon=True).start()
        here = f"http://127.0.0.1:{server.server_port}/"
        page.open(f"{here}reference/commands/")
        page.shows("laxity submit")
        loaded = page.value("performance.getEntriesByType('resource').map(entry => entry.name)")
        server.shutdown()

    assert len(loaded) > 2
    assert [address for address in loaded if not address.startswith(here)] == []


def test_every_page_is_in_the_navigation(tmp_path: Path) -> None:
    write_source(tmp_path / "docs")
    there = {path.relative_to(tmp_path / "docs").as_posix() for path in tmp_path.rglob("*.md")}
    nav = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    listed = [page for section in nav for entries in section.values() for page in entries]

    assert set(listed) == there
    assert len(listed) == len(there)


def test_llms_txt_names_every_page_with_its_first_sentence(tmp_path: Path) -> None:
    write_source(tmp_path)
    text = (tmp_path / "llms.txt").read_text()
    pages = list(tmp_path.rglob("*.md"))

    assert len(re.findall(r"^- \[.+\]\(\S*\): \S.+", text, re.MULTILINE)) == len(pages)
    assert "- [Exit codes](reference/exit-codes): How a command ends." in text


def test_every_annotation_is_in_the_reference_with_a_meaning() -> None:
    page = reference.annotations()
    annotations = {
        value for value in vars(names).values() if str(value).startswith(f"{names.DOMAIN}/")
    }

    assert len(annotations) > 40
    assert [name for name in annotations if f"| `{name}` | " not in page] == []
    assert empty_cells(page) == []


def empty_cells(page: str) -> list[str]:
    """Rows whose last cell, which has the meaning, is empty."""
    return [line for line in page.splitlines() if re.search(r"\| +\|$", line)]


def test_every_environment_variable_of_the_code_has_a_meaning() -> None:
    variables = reference.environment_variables()

    assert {"LAXITY_URL", "LAXITY_CHAIN_ID", "LAXITY_TOKENS_FILE", "LAXITY_TRACES"} <= set(
        variables
    )
    assert [name for name, meaning in variables.items() if not meaning] == []


def test_every_setting_metric_and_reason_has_a_meaning() -> None:
    assert empty_cells(reference.settings()) == []
    assert empty_cells(reference.metrics()) == []
    assert "| `laxity_verdicts_total` | counter | verdict, reason |" in reference.metrics()
    assert [code for code in TEMPLATES if f"| `{code}` | " not in reference.reasons()] == []


def test_every_call_and_command_is_in_the_reference() -> None:
    http, commands = reference.http(), reference.commands()

    for path, methods in reference.openapi()["paths"].items():
        assert [m for m in methods if f"## `{m.upper()} {path}`" not in http] == []
    for command in ("submit", "serve", "train policy", "chain"):
        assert f"## laxity {command}\n" in commands
    assert "| `--deadline` | " in commands
    assert "| `6` | a promise was broken |" in reference.exit_codes()


def test_no_sentence_of_a_page_has_more_than_thirty_words() -> None:
    pages = [page for page in ROOT.glob("docs/**/*.md") if page.parent.name != "measurements"]
    long = [
        f"{page.name}: {sentence}"
        for page in [*pages, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
        for sentence in sentences(page.read_text())
        if len(re.findall(r"\S*\w\S*", sentence)) > 30
    ]
    assert long == []


def sentences(page: str) -> Iterator[str]:
    """Of the prose: no code, tables or headings, links without their addresses. Colons end one."""
    prose = re.sub(r"(?ms)^ *```.*?^ *```|^    [^-*\d].*?$|^[|#<:].*?$", "\n", page)
    prose = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`\n]*`", "code", prose))
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", prose):
        yield from re.split(r"(?<=[.!?])\s+(?=laxity|\W*[A-Z]|code)|(?<=[:;])\s+", paragraph)
