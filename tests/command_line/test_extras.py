import re
import sys
from importlib.metadata import packages_distributions, requires

import pytest

from laxity.cli.optional_packages import EXTRAS, install_advice
from tests.support.processes import run_command

# a module set to None is one that cannot be imported
WITHOUT = (
    "import sys; sys.modules[sys.argv.pop(1)] = None; from laxity.cli.main import main; main()"
)


@pytest.mark.parametrize(
    ("missing", "command", "extra"),
    [
        ("sqlalchemy", "serve", "service"),
        ("scipy", "profile x", "service"),
        ("orjson", "replay", "service"),
    ],
)
def test_a_command_that_lacks_a_package_says_which_extra_brings_it(
    missing: str, command: str, extra: str
) -> None:
    ended = run_command(sys.executable, "-c", WITHOUT, missing, *command.split(), timeout=60)

    assert ended.returncode == 1
    told = (
        f"this needs {missing}, which is not installed: pip install '.[{extra}]' in laxity's clone"
    )
    assert ended.stderr == f"error: {told}\n"


def test_a_module_of_nobody_we_know_is_not_explained_away() -> None:
    assert install_advice(ModuleNotFoundError("No module named 'mine'", name="mine")) is None


@pytest.mark.parametrize("extra", ["flow", "service", "kubernetes", "report"])
def test_whatever_an_extra_brings_can_be_named(extra: str) -> None:
    wanted = re.compile(rf"([\w.-]+).*; extra == ['\"]{extra}['\"]")
    lines = [wanted.match(line) for line in requires("laxity") or ()]
    brought = {plain(line[1]) for line in lines if line}
    known = {module for every in EXTRAS.values() for module in every}
    named = {
        plain(distribution)
        for module, distributions in packages_distributions().items()
        for distribution in distributions
        if module in known
    }

    assert brought
    assert brought <= named


def plain(distribution: str) -> str:
    """As package indexes compare names."""
    return re.sub(r"[-_.]+", "-", distribution).lower()
