"""Build the documentation site into .laxity/site: `make docs`.

The pages are those of docs/ and a reference that is made from the code. The build is strict: a link
or a heading that does not exist ends it.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path

from tests.metrics.__main__ import ROOT
from tests.metrics.test_links import HERE
from tests.site.reference import pages

LINK = re.compile(r"\]\((\.\./[^)]+)\)")


def build() -> int:
    """Prepare the pages and build; the exit status."""
    write_source(ROOT / ".laxity/docs")
    zensical = str(Path(sys.executable).with_name("zensical"))
    command = [zensical, "build", "--clean", "--strict"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def write_source(folder: Path) -> None:
    """Copy docs/ there, beside the reference; links to other files lead to the repository."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder)
    for page in folder.rglob("*.md"):
        place = ROOT / "docs" / page.relative_to(folder)
        page.write_text(LINK.sub(partial(_link, place.parent), page.read_text()))
    (folder / "reference").mkdir()
    for name, text in pages().items():
        (folder / f"reference/{name}.md").write_text(text)
    (folder / "llms.txt").write_text(llms_text(folder))


def llms_text(folder: Path) -> str:
    """The pages for language models: each with its first sentence, in the order of the navigation."""
    project = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    lines = [f"# {project['site_name']}", "", f"> {project['site_description']}"]
    for section in project["nav"]:
        for title, names in section.items():
            lines += ["", f"## {title}", "", *(_entry(folder, name) for name in names)]
    return "\n".join([*lines, ""])


def _entry(folder: Path, name: str) -> str:
    paragraphs = (folder / name).read_text().split("\n\n")
    title = paragraphs[0].removeprefix("# ")
    text = next(text for text in paragraphs[1:] if not text.startswith(("#", "|", "```")))
    first = re.split(r"(?<=\.)\s", " ".join(text.split()))[0]
    return f"- [{title}]({name.removesuffix('.md').removesuffix('README')}): {first}"


def _link(folder: Path, match: re.Match[str]) -> str:
    path = (folder / match[1]).resolve()
    if path.is_relative_to(ROOT / "docs"):
        return match[0]
    return f"]({HERE}{path.relative_to(ROOT)})"


if __name__ == "__main__":
    sys.exit(build())
