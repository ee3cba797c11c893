"""Where the demo can be watched: on the page, or how to open it later."""

import builtins
import io
import sys
import webbrowser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from examples.demo.acts import show_page

ADDRESS = "http://127.0.0.1:8642/#code=abc"
CLIENT: Any = SimpleNamespace(page_address=lambda: ADDRESS)


def shown(*, is_terminal: bool) -> str:
    out = Console(file=io.StringIO(), force_terminal=is_terminal, no_color=True, width=200)
    show_page(out, CLIENT, Path("/home/me/demo"))
    return str(out.file.getvalue())  # type: ignore[attr-defined]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses that a browser was given, by somebody at a terminal who presses Enter."""
    given: list[str] = []
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(builtins, "input", lambda _prompt: "")

    def open_browser(address: str) -> bool:
        given.append(address)
        return True

    monkeypatch.setattr(webbrowser, "open", open_browser)
    return given


def test_demo_opens_the_page_at_a_terminal(opened: list[str]) -> None:
    text = shown(is_terminal=True)

    assert opened == [ADDRESS]
    assert "The page is open" in text


def test_demo_prints_the_address_where_there_is_no_browser(
    opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda _address: False)

    assert ADDRESS in shown(is_terminal=True)


def test_demo_in_a_pipe_says_how_to_look(opened: list[str]) -> None:
    text = shown(is_terminal=False)

    assert opened == []
    assert "export LAXITY_HOME=/home/me/demo; laxity up; laxity ui" in text
