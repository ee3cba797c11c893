"""The wheel: what it holds, and what it tells PyPI."""

import ast
import subprocess
import sys
from configparser import ConfigParser
from email import message_from_string
from email.message import Message
from fnmatch import fnmatchcase
from pathlib import Path
from zipfile import ZipFile

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FIVE = {"laxity", "laxity_profiler", "laxity_scheduler", "laxity_lab", "laxity_k8s"}
DATA = {
    "*/py.typed",
    "laxity_scheduler/http/page/*",
    "laxity_scheduler/learned/shipped_weights.npz",
    "laxity_lab/traces/samples/*",
}
# Packages for those who judge laxity, and installed commands that need them.
JUDGING_NAMES = {
    "bench",
    "benchmarks",
    "demo",
    "examples",
    "laxity_lab",
    "notebooks",
    "studies",
    "tests",
}
LAB_COMMANDS = ("bench", "simulate", "train")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files of the wheel by path, as text; what is no text is empty."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    with ZipFile(next(folder.glob("*.whl"))) as wheel:
        return {name: wheel.read(name).decode(errors="ignore") for name in wheel.namelist()}


def information(files: dict[str, str], name: str) -> str:
    return next(text for path, text in files.items() if path.endswith(f".dist-info/{name}"))


@pytest.fixture(scope="module")
def metadata(files: dict[str, str]) -> Message:
    return message_from_string(information(files, "METADATA"))


def test_a_wheel_holds_five_packages_and_their_data(files: dict[str, str]) -> None:
    shipped = [path for path in files if ".dist-info/" not in path]
    data = [path for path in shipped if not path.endswith(".py")]

    assert {path.split("/")[0] for path in shipped} == FIVE
    assert [path for path in data if not any(fnmatchcase(path, kind) for kind in DATA)] == []
    assert [kind for kind in DATA if not any(fnmatchcase(path, kind) for path in data)] == []


def test_what_judges_laxity_is_shipped_only_for_its_command(files: dict[str, str]) -> None:
    entries = ConfigParser()
    entries.read_string(information(files, "entry_points.txt"))
    folders = {Path(path).parts[0] for path in files} | {
        parent.name for path in files for parent in Path(path).parents if "laxity_lab" not in path
    }

    assert folders & JUDGING_NAMES == {"laxity_lab"}
    for command in LAB_COMMANDS:
        assert entries["laxity.commands"][command].startswith("laxity_lab."), command


def test_a_wheel_imports_nothing_that_is_left_out_of_it(files: dict[str, str]) -> None:
    pages = [text for path, text in files.items() if path.endswith(".py")]
    imported = {name.partition(".")[0] for text in pages for name in imports(text)}

    assert imported >= FIVE
    assert imported & {"benchmarks", "notebooks", "studies", "tests"} == set()


def imports(text: str) -> set[str]:
    """Modules that a file imports, inside functions too, and what it imports from them."""
    nodes = list(ast.walk(ast.parse(text)))
    plain = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    parts = [
        (n.module, name.name) for n in nodes if isinstance(n, ast.ImportFrom) for name in n.names
    ]
    return plain | {str(module) for module, _ in parts} | {f"{m}.{name}" for m, name in parts}


def test_no_extra_of_a_wheel_is_for_its_developers(metadata: Message) -> None:
    assert {"dev", "test"} & set(metadata.get_all("Provides-Extra", [])) == set()


def test_metadata_lead_to_the_repository_and_are_of_a_version_that_uploads(
    metadata: Message,
) -> None:
    urls = dict(url.split(", ") for url in metadata.get_all("Project-URL", []))
    assert urls.keys() >= {"Homepage", "Documentation", "Changelog", "Issues", "Security"}
    assert metadata["Metadata-Version"] == "2.4"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == (ROOT / "README.md").read_text(encoding="utf-8")
