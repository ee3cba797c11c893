"""Services on a world in memory, with real stores and the real HTTP app."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from fastapi.testclient import TestClient

from laxity import names
from laxity_profiler.history.history import History
from laxity_profiler.history.history_database import open_engine
from laxity_profiler.learning.learner import Learner
from laxity_scheduler.http.app import create_app
from laxity_scheduler.http.job_service import JobService
from laxity_scheduler.http.tokens import Tokens
from laxity_scheduler.notifications.dispatcher import Dispatcher
from laxity_scheduler.notifications.message import Message
from laxity_scheduler.notifications.outbox import Sink
from laxity_scheduler.plan import Policy
from laxity_scheduler.policies import qos
from laxity_scheduler.service.feedback import Feedback
from laxity_scheduler.service.loop import Service
from laxity_scheduler.service.policy_in_force import PolicyInForce
from laxity_scheduler.service.settings import Settings
from laxity_scheduler.store.store import Store
from tests.support.builders import SECRET, TOKEN, Curve, bearer
from tests.support.manifests import indexed_job, train_template
from tests.support.memory_world import MemoryWorld

Json = dict[str, Any]
PATIENCE_S = 60.0


@dataclass
class Fixed:
    """Learns nothing: always the predictor that it holds."""

    in_use: Curve

    def predictor(self) -> Curve:
        return self.in_use


@dataclass
class Stage:
    """A running service and what stands around it."""

    service: Service
    desk: JobService
    world: MemoryWorld
    history: History
    learning: Fixed
    http: TestClient

    def submit(self, name: str = "a", **said: Any) -> Json:
        answer = self.http.post("/v1/jobs", json=manifest(name, **said))
        assert answer.status_code in (200, 201), answer.text
        view: Json = answer.json()
        return view

    def run(self, name: str = "a", **said: Any) -> Json:
        """Submit it; its view once it has workers."""
        self.submit(name, **said)
        return self.until(f"default/{name}", lambda view: view["workers"] > 0, "running")

    def until(self, job_id: str, so: Callable[[Json], bool], words: str) -> Json:
        """The job's view once it is so."""
        view: Json = self.http.get(f"/v1/jobs/{job_id}").json()
        give_up_at = time.monotonic() + PATIENCE_S
        while not so(view):
            assert time.monotonic() < give_up_at, f"{job_id} is never {words}: {view}"
            view = self.http.get(
                f"/v1/jobs/{job_id}", params={"wait_s": 1.0, "seen": view["revision"]}
            ).json()
        return view


def manifest(
    name: str = "a",
    *,
    namespace: str = "default",
    epochs: int = 10,
    deadline: str | None = None,
    key: str = "",
    **annotations: str,
) -> Json:
    """A labelled Job; further keywords are annotations: service_class="soft" by `laxity.dev/class`."""
    said = {"model": "mlp", "epochs": str(epochs), "entry": "train:main", "widths": "1,2,4"}
    said |= {"deadline": deadline} if deadline else {}
    said |= {"idempotency_key": key} if key else {}
    env = [{"name": names.ENV_EPOCHS, "value": str(epochs)}]
    template = train_template(image="train:1", env=env)
    return indexed_job(name, template, said | annotations, namespace=namespace)


class Charts:
    """Plays MLflow: away, or keeping the points that it is sent, once `answers` is set."""

    name = "mlflow"

    def __init__(self, *, is_away: bool = False, answers: bool = True) -> None:
        self.is_away, self.delivered, self.answers = is_away, 0, Event()
        self.points: list[tuple[int, float, dict[str, float]]] = []
        if answers:
            self.answers.set()

    def deliver(self, message: Message) -> None:
        if self.is_away:
            raise ConnectionError("nobody is there")
        assert self.answers.wait(PATIENCE_S)
        self.points += [(point.epoch, point.at, dict(point.values)) for point in message.points]
        self.delivered += 1

    def values(self, name: str = "loss") -> list[tuple[int, float]]:
        return [(epoch, values[name]) for epoch, _, values in self.points if name in values]


@contextmanager
def staged(
    home: Path,
    world: MemoryWorld,
    *,
    predictor: Curve | None = None,
    policy: Policy | PolicyInForce = qos.decide,
    listeners: Sequence[Sink] = (),
    tokens: Tokens | None = None,
    **settings: Any,
) -> Iterator[Stage]:
    """A service on this home and world, with its HTTP app; its loop runs until the end.

    Without `tokens` the client shows one that opens everything.
    """
    given = Settings(home=home, least_interval_s=0.0, **settings)
    store = Store.open(given.store_url)
    engine = open_engine(given.store_url)
    history = History(engine)
    learning = Fixed(predictor or Curve(epoch_s=1.0))
    service = Service(
        settings=given,
        world=world,
        store=store,
        learning=learning,
        report_of=history.report,
        policy=policy,
        feedback=Feedback(history, Learner(history)),
        leads=store.try_lead,
    )
    teller = Dispatcher(service.view_cache, service.metrics, listeners, store)
    service.notifications = teller
    desk = JobService(service, history)
    service.take_left_reports = desk.workers.take_left_reports
    app = create_app(service, desk, tokens or Tokens.for_token(TOKEN, SECRET))
    shown = {} if tokens else bearer(TOKEN)
    try:
        with TestClient(
            app, "http://127.0.0.1", raise_server_exceptions=False, headers=shown
        ) as http:
            wait_until(lambda: service.completed > 0, "the first cycle")
            yield Stage(service, desk, world, history, learning, http)
    finally:
        teller.close()
        engine.dispose()
        store.close()


def wait_until(so: Callable[[], bool], words: str) -> None:
    """Until it is so; a failed test says for what was waited."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not so():
        assert time.monotonic() < give_up_at, f"waited {PATIENCE_S} s for {words}"
        time.sleep(0.005)


def looked(world: MemoryWorld) -> int:
    """How often the service has looked at it, which it is asked to do."""
    world.wake()
    return world.observed


def submit_together(stage: Stage, *jobs: str) -> None:
    """All at once: no cycle sees some of them only."""
    with stage.world._lock:
        for name in jobs:
            stage.world.submit(manifest(name, deadline="1h", widths="1"))
