"""Logins in addresses: on no command line, in no message and no log; urllib gets them all the same."""

import base64
import json
import logging
import os
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from laxity.api.client import Client
from laxity.api.transport import ServiceAwayError, ServiceError
from laxity.http_login import request_to
from laxity.safe_text import without_secrets
from laxity.worker.mlflow_tracking import require_answer
from laxity_profiler.history.history_database import HistoryError, open_engine
from laxity_profiler.registry.mlflow_errors import MlflowAwayError, check_answers
from laxity_scheduler.notifications.message import Message
from laxity_scheduler.notifications.prefect_api import PrefectApi
from laxity_scheduler.notifications.webhook import Webhook
from laxity_scheduler.process.logs import JsonFormatter, TextFormatter
from laxity_scheduler.process.tracking_links import tracking_lines
from laxity_scheduler.service.settings import Settings, SettingsError
from laxity_scheduler.store.store import Store, StoreError
from tests.support.http_service import Answer, Asked, JsonServer
from tests.support.processes import free_ports, run_command

MANIFESTS = Path(__file__).parents[2] / "k8s" / "manifests"
PASSWORD = "hunter2-of-the-tests"
TOKEN = "tok-of-the-tests"
SECRETS = (PASSWORD, TOKEN)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at http://user:pw@host:5000/a down", "at http://host:5000/a down"),
        ("(http://token@host)", "(http://host)"),
        ("'postgresql://u:p%40w@host/db'", "'postgresql://host/db'"),
        ("postgresql+psycopg://u:p/w?x#y@host/db", "postgresql+psycopg://host/db"),
        ("http://u:p@w@host/", "http://host/"),
        ("http://a:b@h and https://c:d@i", "http://h and https://i"),
        ("https://h/hook?token=abc&x=1", "https://h/hook?token=***&x=1"),
        ("https://h/?x=1&API_KEY=abc#access_token=def", "https://h/?x=1&API_KEY=***#access_token=***"),
        ("http://host:5000/models/a@champion", "http://host:5000/models/a@champion"),
        ("models:/widths@champion", "models:/widths@champion"),
        ("mail a:b@c.d", "mail a:b@c.d"),
        ("http://h/#/runs?workflowType=machine_learning", "http://h/#/runs?workflowType=machine_learning"),
    ],
)  # fmt: skip
def test_an_address_is_shown_without_its_secrets(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


@pytest.mark.parametrize("quoted", ["nonnumeric port: 'hunter2-of@h:1'", "no host 'hunter2-of@h'"])
def test_a_password_that_a_library_quotes_in_part_is_taken_out(quoted: str) -> None:
    assert "hunter2-of" not in without_secrets(quoted, "http://u:hunter2-of@h:1")


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://u:{PASSWORD}@127.0.0.1:9/x",
        "postgresql://u:p@ss-of-the-tests@127.0.0.1:9/x",
        f"postgresql://u@127.0.0.1:9/x?password={PASSWORD}",
        f"postgresql://u:{PASSWORD}@[::bad/x",
        f"no-database://u:{PASSWORD}@host/x",
    ],
)
def test_a_store_that_does_not_open_is_named_without_its_password(address: str) -> None:
    for open_one, kind in ((Store.open, StoreError), (open_engine, HistoryError)):
        with pytest.raises(kind) as raised:
            open_one(address)
        assert not [part for part in (PASSWORD, "ss-of-the") if part in str(raised.value)]


@pytest.mark.parametrize("password", [PASSWORD, "a@b-of-tests", "a/b-of-tests", "8080-of-tests"])
def test_an_mlflow_that_does_not_answer_is_named_without_its_password(password: str) -> None:
    uri = f"http://user:{password}@127.0.0.1:9/x?token={TOKEN}"
    told = list(tracking_lines(uri))
    for ask, kind in ((require_answer, ConnectionError), (check_answers, MlflowAwayError)):
        with pytest.raises(kind) as raised:
            ask(uri)
        told.append(str(raised.value))
    assert all("does not answer" in text for text in told)
    assert not [text for text in told if password in text or TOKEN in text or "of-tests" in text]


def test_a_store_of_runs_with_a_password_is_shown_by_the_variable_that_holds_it() -> None:
    lines = list(tracking_lines(f"postgresql://u:{PASSWORD}@host/mlflow"))
    assert lines[0].endswith('ui --workers 1 --backend-store-uri "$MLFLOW_TRACKING_URI"')
    assert PASSWORD not in "".join(lines)


def test_a_wrong_option_is_told_without_its_secrets() -> None:
    for name in ("webhook", "public_url"):
        with pytest.raises(SettingsError) as raised:
            Settings(**{name: f"ftp://u:{PASSWORD}@h/?token={TOKEN}"})  # type: ignore[arg-type]
        assert not [secret for secret in SECRETS if secret in str(raised.value)]
    page = Settings(tracking_uri=f"http://u:{PASSWORD}@h/?token={TOKEN}").run_url("1", "r")
    assert not [secret for secret in SECRETS if secret in page]


def test_a_client_names_its_service_without_the_login() -> None:
    for address in (f"http://u:{PASSWORD}@127.0.0.1:9", f"ftp://u:{PASSWORD}@h"):
        with pytest.raises((ServiceAwayError, ServiceError)) as raised:
            Client(address, patience_s=0.0).jobs()
        assert PASSWORD not in str(raised.value)
        assert PASSWORD not in repr(raised.value)


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_log_line_and_its_traceback_hold_no_secrets(formatter: logging.Formatter) -> None:
    error = ValueError(f"API request to http://u:{PASSWORD}@h/api?token={TOKEN} failed")
    record = logging.LogRecord(
        "x", 40, "x.py", 1, "at http://u:%s@h", (PASSWORD,), (ValueError, error, None)
    )
    line = formatter.format(record)
    assert "ValueError: API request to http://h/api" in line
    assert not [secret for secret in SECRETS if secret in line]


# --- the login arrives ---


class Login:
    """An HTTP server that wants a login, and remembers what it was asked with."""

    def __init__(self) -> None:
        self.seen: list[Asked] = []
        self.server = JsonServer(self.answer)
        self.place = f"127.0.0.1:{self.server.port}"

    def answer(self, asked: Asked) -> Answer:
        self.seen.append(asked)
        return (200 if asked.token else 401), {}


@pytest.fixture
def asked() -> Iterator[Login]:
    made = Login()
    yield made
    made.server.close()


def test_a_login_in_an_address_goes_into_the_header(asked: Login) -> None:
    address = f"http://us%40er:{PASSWORD}%2F@{asked.place}"
    message = Message(view={"id": "default/a", "uid": "u"}, events=("ended",))

    require_answer(address)
    check_answers(address)
    Webhook(f"{address}/hook?token={TOKEN}").deliver(message)
    PrefectApi(address).request("GET", "/flow_runs/1")

    basic = base64.b64encode(f"us@er:{PASSWORD}/".encode()).decode()
    assert {one.token for one in asked.seen} == {f"Basic {basic}"}
    assert [one.path for one in asked.seen] == [
        "/health", "/health", f"/hook?token={TOKEN}", "/flow_runs/1",
    ]  # fmt: skip
    assert {one.host for one in asked.seen} == {asked.place}


def test_a_header_that_is_given_counts_more_than_the_login() -> None:
    request = request_to("http://u:p@h/x", headers={"Authorization": "Bearer key"})
    assert request.full_url == "http://h/x"
    assert request.get_header("Authorization") == "Bearer key"


# --- a whole service ---


def command_lines() -> dict[str, str]:
    """Of all processes of this machine but those that end meanwhile, by process id."""
    lines = {}
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit():
                lines[folder.name] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, UnicodeDecodeError):
            continue
    return lines


@contextmanager
def watching_command_lines(found: set[str]) -> Iterator[None]:
    """Every few milliseconds; command lines that hold a secret."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.01):
            found.update(
                line
                for line in command_lines().values()
                if any(secret in line for secret in SECRETS)
            )

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def readable_by_others(home: Path) -> list[str]:
    """Files of a home that another user could open: the home itself must be closed."""
    if not stat.S_IMODE(home.stat().st_mode) & 0o077:
        return []
    return [str(path) for path in home.rglob("*") if stat.S_IMODE(path.stat().st_mode) & 0o044]


TRAINING = """
def train(training):
    for epoch in training.epochs():
        training.log(loss=1.0)
    raise RuntimeError("API request to " + __import__("os").environ["MLFLOW_TRACKING_URI"])
"""


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("by_option", [False, True], ids=["by environment", "by options"])
def test_a_service_and_its_workers_show_no_secrets_anywhere(
    tmp_path: Path,
    postgres_url: str,
    asked: Login,
    by_option: bool,
) -> None:
    (tmp_path / "work.py").write_text(TRAINING)
    home = tmp_path / "home"
    (away,) = free_ports(1)
    store = postgres_url.replace("laxity@", f"laxity:{PASSWORD}@")
    options = {
        "--store": store,
        "--tracking-uri": f"http://user:{PASSWORD}@127.0.0.1:{away}",
        "--webhook": f"http://user:{PASSWORD}@{asked.place}/hook?token={TOKEN}",
    }
    environ = os.environ | {"LAXITY_HOME": str(home)}
    names = ("LAXITY_STORE", "MLFLOW_TRACKING_URI", "LAXITY_WEBHOOK")
    variables = dict(zip(names, options.values(), strict=True))
    environ |= {} if by_option else variables
    words = [text for pair in options.items() for text in pair] if by_option else []

    def laxity(*arguments: str) -> str:
        done = run_command(
            sys.executable, "-P", "-m", "laxity.cli.main", *arguments, env=environ, cwd=tmp_path
        )
        return done.stdout + done.stderr

    found: set[str] = set()
    shown = []
    try:
        with watching_command_lines(found):
            shown.append(laxity("up", "--port", "0", "--slots", "1", *words))
            shown.append(
                laxity("submit", "work.py:train", "--name", "a", "--epochs", "2", "--follow")
            )
        shown += [laxity(*each) for each in (("show", "a"), ("logs", "a"), ("cluster",))]
        shown += [
            laxity("cluster", "--json"),
            laxity("show", "a", "--json"),
            laxity("explain", "a"),
        ]
        address = json.loads((home / "service.json").read_text())["url"]
        shown.append(str(Client(address)._send_request("GET", "/readyz")))
    finally:
        shown.append(laxity("down"))

    found = {line for line in found if "laxity.cli.main up" not in line}  # what its user typed
    assert found == set()
    assert "up: http://127.0.0.1" in shown[0], shown[0]
    assert "does not answer" in shown[0]
    assert "RuntimeError: API request to http://127.0.0.1" in "".join(shown)
    shown += [(home / "service.log").read_text()]
    assert not [text for text in shown if any(secret in text for secret in SECRETS)]
    assert readable_by_others(home) == []
    assert f"/hook?token={TOKEN}" in [one.path for one in asked.seen]


def test_no_manifest_puts_a_variable_on_a_command_line() -> None:
    for file in sorted(MANIFESTS.rglob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            for words in _commands_in(document):
                assert not [word for word in words if "$(" in str(word)], file


def _commands_in(part: object) -> Iterator[list[object]]:
    if isinstance(part, dict):
        yield from (value for key, value in part.items() if key in ("args", "command"))
        for value in part.values():
            yield from _commands_in(value)
    elif isinstance(part, list):
        for value in part:
            yield from _commands_in(value)
