"""README and docs call commands and options that there are."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from laxity.cli.lazy_commands import BY_NAME, load_command
from laxity.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
CALL = re.compile(r"`laxity ([a-z][^`|\n]*)`|^(?:\$ |- run: |  *run: )?laxity ([a-z][^#|\n]*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def calls(text: str) -> Iterator[str]:
    """What follows `laxity` in code: in backticks, or at the beginning of a line of a block."""
    in_block = False
    for line in text.splitlines():
        if line.startswith("```"):
            in_block = not in_block
        for match in CALL.finditer(line):
            if match[1] or in_block:
                yield match[1] or match[2]


def problem(call: str) -> str:
    """What is wrong with a call; nothing if its command and its options exist."""
    command: Any = get_command(app)
    floors = BY_NAME
    words = call.partition(" -- ")[0].split()  # what follows is another program's
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        name = words.pop(0)
        command = load_command(floors[name]) if name in floors else command.commands.get(name)
        floors = {}
        if command is None:
            return f"laxity {call}: there is no command {name!r}"
    options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    unknown = [option for option in OPTION.findall(" ".join(words)) if option not in options]
    return f"laxity {call}: there is no option {unknown[0]}" if unknown else ""


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(ROOT).as_posix() for page in PAGES])
def test_a_page_calls_commands_and_options_that_exist(page: Path) -> None:
    problems = [problem(call) for call in calls(page.read_text(encoding="utf-8"))]
    assert [line for line in problems if line] == []


@pytest.mark.parametrize(
    ("call", "wrong"),
    [
        ("ls --json", ""),
        ("lss", "no command 'lss'"),
        ("train policy --seeds 3", "no option --seeds"),
    ],
    ids=["as it is", "a command that is gone", "an option that is gone"],
)
def test_a_call_of_what_is_gone_is_named(call: str, wrong: str) -> None:
    assert wrong in problem(call)
    assert bool(problem(call)) == bool(wrong)
