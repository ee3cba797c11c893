"""`laxity ui`: the page in a browser, signed in."""

import webbrowser

import pytest
from typer.testing import CliRunner

from laxity import names
from laxity.cli.main import app
from tests.support.http_service import service


@pytest.mark.parametrize(
    ("opens", "words"),
    [
        pytest.param(True, "page: {url}/", id="a browser opens"),
        pytest.param(
            False, "no browser opens here; within a minute, open {url}/#code=c1", id="none"
        ),
    ],
)
def test_ui_opens_the_page_with_a_code_or_prints_its_address(
    monkeypatch: pytest.MonkeyPatch, opens: bool, words: str
) -> None:
    opened: list[str] = []

    def open_address(url: str) -> bool:
        opened.append(url)
        return opens

    monkeypatch.setattr(webbrowser, "open", open_address)
    monkeypatch.setenv(names.ENV_TOKEN, "token-of-this-service")
    with service() as fake:
        fake.answers["POST /v1/session/code"] = (200, {"code": "c1"})
        monkeypatch.setenv(names.ENV_URL, fake.url)
        done = CliRunner().invoke(app, ["ui"])

        assert opened == [f"{fake.url}/#code=c1"]
        assert done.stdout.strip() == words.format(url=fake.url)
        assert fake.asked[0].token == "Bearer token-of-this-service"
