"""Creates a service from its parts: store, history, world, policy, sinks.

Worlds and policies are found by name. Each part may need those opened before it; parts are closed in
the reverse order.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Final, cast

from laxity import json_tree, names
from laxity.safe_text import without_secrets
from laxity_profiler.estimate import Predictor
from laxity_scheduler.http.job_service import JobService
from laxity_scheduler.job_faults import JobFaults
from laxity_scheduler.live import LiveWorld, Report, WorldModule
from laxity_scheduler.notifications.dispatcher import Dispatcher
from laxity_scheduler.notifications.poller import Poller
from laxity_scheduler.process.open_policies import alias_poller, open_policy
from laxity_scheduler.service.exported.metrics import Metrics
from laxity_scheduler.service.feedback import Feedback
from laxity_scheduler.service.leadership import Leadership
from laxity_scheduler.service.loop import Service
from laxity_scheduler.service.settings import Settings, SettingsError
from laxity_scheduler.store.store import Store

LOG: Final = logging.getLogger(__name__)
WORLDS: Final = "laxity.worlds"


@dataclass(frozen=True, slots=True)
class OpenService:
    """A service that is ready to run, and what HTTP asks of it."""

    service: Service
    job_service: JobService


@contextmanager
def open_service(
    settings: Settings, *, url: str, worker_token: Callable[[str], str]
) -> Iterator[OpenService]:
    """Open all parts of a service; they are closed at the end of the block."""
    from laxity_profiler.history.history import History
    from laxity_profiler.history.history_database import open_engine
    from laxity_profiler.learning.learner import Learner

    with ExitStack() as stack:
        store = Store.open(settings.store_url)
        stack.callback(store.close)
        engine = open_engine(settings.store_url)
        stack.callback(engine.dispose)
        metrics = Metrics()
        history = History(engine, on_fault=metrics.faults.record_fault)
        learner = Learner(history, priors="local" if settings.world == "local" else "cluster")
        world = open_world(
            settings, history.report, metrics.faults, url=url, worker_token=worker_token
        )
        stack.callback(world.close)
        elected = create_leadership(settings, store, world, stack)
        leads = elected.ensure_leading if elected else store.try_lead
        service = Service(
            settings=settings,
            world=world,
            store=store,
            learning=learner if store.is_exclusive else RefreshingLearner(history, learner),
            report_of=history.report,
            metrics=metrics,
            policy=open_policy(settings, store),
            feedback=Feedback(history, learner),
            leads=leads
            if store.is_exclusive
            else catching_up_first(leads, learner.reload_outcomes),
        )
        if elected:
            service.leader, service.silence = elected.holder, elected.silence
        world.adopt(service.view_cache.shows_verdict)
        teller = Dispatcher(
            service.view_cache, service.metrics, create_sinks(settings, world, url), store
        )
        stack.callback(teller.close)
        service.notifications = teller
        for reader in (
            mlflow_poller(settings, history, due=lambda: service.leading),
            prefect_poller(settings, service),
            alias_poller(settings, service.policies, store),
        ):
            if reader is not None:
                stack.callback(reader.close)
                reader.start()
        job_service = JobService(service, history)
        service.take_left_reports = job_service.workers.take_left_reports
        yield OpenService(service, job_service)


def mlflow_poller(settings: Settings, history: Any, *, due: Callable[[], bool]) -> Poller | None:
    """Reads epochs from MLflow while this replica leads; None without MLflow."""
    if not settings.tracking_url:
        return None

    def read() -> int:
        from laxity_profiler.history.mlflow_runs import MlflowRuns

        return MlflowRuns(history, settings.tracking_url).read()

    return Poller(read, due=due)


def prefect_poller(settings: Settings, service: Service) -> Poller | None:
    """Cancels jobs whose flow runs are cancelled, while this replica leads; None without Prefect."""
    if not uses_prefect(settings):
        return None
    from laxity_scheduler.notifications.prefect_api import PrefectApi
    from laxity_scheduler.notifications.prefect_cancellations import (
        INTERVAL_S,
        PrefectCancellations,
    )

    api = PrefectApi.from_environment(settings.prefect_api, os.environ)
    runs = PrefectCancellations(api, service.view_cache.all, service.world.cancel)
    return Poller(
        runs.cancel_jobs, due=lambda: service.leading, interval_s=INTERVAL_S, source="Prefect"
    )


def uses_prefect(settings: Settings) -> bool:
    """Flow runs are Jobs on a cluster only. SettingsError if that is no address of an API."""
    url = settings.prefect_api
    if not url or settings.world != "kubernetes":
        return False
    if not url.startswith(("http://", "https://")):
        raise SettingsError(f"PREFECT_API_URL {without_secrets(url)!r}: write http://HOST:4200/api")
    return True


def create_leadership(
    settings: Settings, store: Store, world: LiveWorld, stack: ExitStack
) -> Leadership | None:
    """Elects one of several services where the world can; None: the store's lock decides who acts."""
    election = world_module(settings.world).open_lease(
        world, settings.home, store_id=store.identity(), lease_s=settings.lease_s
    )
    if election is None:
        return None
    stack.callback(election.close)
    return Leadership(store, election)


def catching_up_first(
    leads: Callable[[], bool], catch_up: Callable[[], None]
) -> Callable[[], bool]:
    """`leads`, which catches up whenever it begins to be true, before the leader predicts anything."""
    led = False

    def leads_now() -> bool:
        nonlocal led
        now = leads()
        if now and not led:
            catch_up()
        led = now
        return now

    return leads_now


@dataclass(frozen=True, slots=True)
class RefreshingLearner:
    """The learner's predictor, after reading what workers reported to other replicas."""

    history: Any
    learner: Any

    def predictor(self) -> Predictor:
        self.history.refresh()
        predictor: Predictor = self.learner.predictor()
        return predictor


def create_sinks(settings: Settings, world: LiveWorld, url: str) -> list[Any]:
    """MLflow unless it is turned off, Prefect and the webhook if they are configured."""
    from laxity_scheduler.notifications.mlflow_sink import MlflowSink
    from laxity_scheduler.notifications.prefect_api import PrefectApi
    from laxity_scheduler.notifications.prefect_sink import PrefectSink
    from laxity_scheduler.notifications.webhook import Webhook

    def on_run(job_id: str, uid: str, experiment: str, run_id: str) -> None:
        try:
            if json_tree.uid_of(world.job(job_id)) == uid:
                world.annotate(job_id, {names.RUN_ID: f"{experiment}/{run_id}"})
                world.wake()
        except KeyError:
            LOG.info("%s was gone before its MLflow run was made", job_id, extra={"job": job_id})

    sinks: list[Any] = []
    page_url = url if settings.public_url or settings.is_loopback else ""  # browsers reach it
    if settings.tracking_url:
        sinks.append(MlflowSink(settings.tracking_url, on_run, world.job, page_url))
    if uses_prefect(settings):
        sinks.append(PrefectSink(PrefectApi.from_environment(settings.prefect_api, os.environ)))
    if settings.webhook:
        sinks.append(Webhook(settings.webhook))
    return sinks


def open_world(
    settings: Settings,
    reports: Callable[[str], Report],
    faults: JobFaults,
    *,
    url: str,
    worker_token: Callable[[str], str],
) -> LiveWorld:
    """The world of the settings' name, by entry point."""
    return world_module(settings.world).open_world(
        settings.home,
        reports,
        slots=settings.slots,
        inference_slots=settings.inference_slots,
        url=url,
        fit_within_s=settings.pods_within_s,
        pools=settings.pools,
        worker_token=worker_token,
        faults=faults,
    )


def world_module(name: str) -> WorldModule:
    """The module of a world; SettingsError names the worlds that are installed."""
    worlds = {entry.name: entry for entry in entry_points(group=WORLDS)}
    if name not in worlds:
        raise SettingsError(f"world {name!r} is not installed; known: {', '.join(sorted(worlds))}")
    return cast("WorldModule", import_module(worlds[name].module))


def load_predictor(parameters: dict[str, Any]) -> Predictor:
    """The predictor that the journal's parameters describe."""
    from laxity_profiler.predictor.history_predictor import HistoryPredictor

    predictor: Predictor = HistoryPredictor.from_json(parameters)
    return predictor
