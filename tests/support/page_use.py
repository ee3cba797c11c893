"""What people do on the page, and what they see of it."""

import os
from pathlib import Path

from tests.support.browser import Page

SENTENCE = "document.getElementById('sentence').textContent"
PANEL = "document.getElementById('panel').innerText"
TABLE = "document.getElementById('table').textContent"
LANES = "document.getElementById('lanes')"


def keep_picture(page: Page, name: str) -> None:
    """The picture, for whoever wants to look: LAXITY_PICTURES names a folder."""
    if folder := os.environ.get("LAXITY_PICTURES"):
        page.picture(Path(folder) / f"{name}.png")


def press(page: Page, key: str, on: str = "document.body") -> None:
    page.value(f"{on}.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}}))")


def press_button(page: Page, label: str) -> None:
    page.wait_for(
        f"[...document.querySelectorAll('#panel button')].some(b => b.innerText === '{label}')"
    )
    page.value(
        f"[...document.querySelectorAll('#panel button')].find(b => b.innerText === '{label}').click()"
    )
    page.wait_for("document.getElementById('ask').open")


def answer(page: Page, word: str) -> None:
    page.value(f"document.querySelector('#ask button[value={word}]').click()")
    page.wait_for("!document.getElementById('ask').open")
