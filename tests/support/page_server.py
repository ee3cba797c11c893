"""The page of a service in memory, served to a real browser, with as many jobs as a test asks for."""

import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, Final

import uvicorn

from laxity_scheduler.http.tokens import Tokens
from laxity_scheduler.service.views.manifest_view import fields_from_manifest
from laxity_scheduler.service.views.promise_outcome import outcome_of
from laxity_scheduler.service.views.view_record import INTERNAL_FIELDS, row_of_view
from laxity_scheduler.store.store import Store
from tests.support.browser import Page
from tests.support.builders import SECRET, TOKEN, Curve
from tests.support.memory_world import MemoryWorld
from tests.support.services import PATIENCE_S, Stage, staged, wait_until

Json = dict[str, Any]
HOUR_S: Final = 3_600.0
TOKENS: Final = Tokens.for_token(TOKEN, SECRET)


@contextmanager
def page_server(
    home: Path, world: MemoryWorld, *, port: int = 0, spread: float = 0.2
) -> Iterator[tuple[Stage, str]]:
    """A service and the address of its page; another one on the same home goes on from its store."""
    with staged(home, world, tokens=TOKENS, predictor=Curve(epoch_s=1.0, spread=spread)) as stage:
        stage.http.headers["Authorization"] = f"Bearer {TOKEN}"
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        config = uvicorn.Config(
            stage.http.app, lifespan="off", log_level="error", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        thread = Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            wait_until(lambda: server.started, "the page's server")
            yield stage, f"http://127.0.0.1:{listening.getsockname()[1]}/"
        finally:
            stage.service.notifier.close()
            server.should_exit = True
            thread.join(timeout=PATIENCE_S)
            listening.close()


def sign_in(page: Page, url: str, token: str = TOKEN) -> None:
    """Open the page and hand in the token, as a person does."""
    page.open(url)
    page.wait_for("document.getElementById('sign-in')?.open")
    hand_in(page, token)
    page.wait_for("document.getElementById('sentence').textContent")


def hand_in(page: Page, token: str) -> None:
    page.value(f"document.getElementById('token').value = '{token}'")
    page.value("document.querySelector('#sign-in button').click()")


def store_past_jobs(home: Path, number: int = 1, *, name: str = "", seed: int = 0) -> None:
    """Write jobs that ended within the last week, with four widths each, into the home's store."""
    rng, now = random.Random(seed), time.time()
    home.mkdir(parents=True, exist_ok=True)
    store = Store.open(f"sqlite:///{home}/laxity.db")
    names = [name] if name else [f"night-{index:04}" for index in range(number)]
    views = [past_view(each, now - rng.uniform(1.0, 160.0) * HOUR_S, rng) for each in names]
    store.write_rows([], [row_of_view(view) for view in views])
    store.close()


def past_view(name: str, ended_at: float, rng: random.Random) -> Json:
    """A promised job that ended: most kept their promise."""
    stamps = sorted(rng.uniform(0.1, 6.0) * HOUR_S for _ in range(5))
    began_at = ended_at - stamps[-1]
    widths = [rng.choice([1, 2, 4, 8]), 0, rng.choice([1, 2, 4]), rng.choice([2, 4, 8]), 0]
    history = [[began_at + at - stamps[0], width] for at, width in zip(stamps, widths, strict=True)]
    view = fields_from_manifest(
        {"metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"}}
    )
    view |= dict.fromkeys(INTERNAL_FIELDS) | {"revision": 1, "broken": False, "class": "hard"}
    view |= {
        "model": rng.choice(["resnet", "bert", "mlp"]),
        "verdict": "promised",
        "state": "finished",
    }
    view |= {
        "submitted_at": began_at - 600.0,
        "finished_at": history[-1][0],
        "width_history": history,
    }
    view |= {
        "deadline_at": history[-1][0] + rng.uniform(-600.0, 7_200.0),
        "epochs": 10,
        "epochs_done": 10,
    }
    view |= {"given_p90_at": history[-1][0] + rng.uniform(-900.0, 900.0)}
    return view | {"outcome": outcome_of(view)}
