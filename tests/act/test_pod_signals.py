"""A signal that no worker comes for is written onto its pod, and obeyed there."""

import json
from collections.abc import Sequence
from typing import Any, cast

import pytest

from laxity import json_tree, names
from laxity.job.signal import format_parked_line
from laxity_k8s.act.pod_signals import PATIENCE_S, PodSignals
from laxity_k8s.cluster_api import ClusterApi, Json, Listing
from laxity_k8s.error_isolation import Guard
from laxity_k8s.objects.jobs import job_row
from laxity_k8s.objects.signals import Signals
from laxity_k8s.observe.cluster_cache import ClusterCache
from laxity_scheduler.live import Report
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job
from tests.support.manifests import CREATED_AT, job, pod

NOW = CREATED_AT + 1_000.0


class Cluster:
    """One running job with a pod of worker 0, and what that pod's log says."""

    def __init__(self) -> None:
        self.log_text = ""
        self.cache = ClusterCache(cast("ClusterApi", self), lambda: None)
        self.signals = Signals()
        self.news: list[str] = []
        self.pod_signals = PodSignals(
            cast("ClusterApi", self),
            self.cache,
            self.signals,
            lambda _: Report(),
            on_news=lambda: self.news.append("news"),
        )
        self.put("jobs", job(suspend=False, nodes='["a"]'))
        self.put("pods", pod(0, node="a"))

    def list(self, kind: str) -> Listing:
        return Listing((), "0")

    def watch(self, kind: str, **_: Any) -> Any:
        return None

    def log(self, pod_id: str, *, tail: int | None = None) -> str:
        assert pod_id == json_tree.object_id(self.pod)
        return self.log_text

    def put(self, kind: Any, thing: Json) -> None:
        meta = {**thing["metadata"], "resourceVersion": str(self._revision())}
        self.cache.put_object(kind, {**thing, "metadata": meta})

    def _revision(self) -> int:
        things = [*self.cache.jobs.values(), *self.cache.pods.values()]
        return 1 + max((int(one["metadata"]["resourceVersion"]) for one in things), default=0)

    @property
    def pod(self) -> Json:
        (only,) = self.cache.pods.values()
        return only

    @property
    def job(self) -> Json:
        (only,) = self.cache.jobs.values()
        return only

    def ask(self, **annotations: str | None) -> None:
        """The service asks the job for something, or takes it back."""
        keys = {f"{names.DOMAIN}/{key}": text for key, text in annotations.items()}
        self.put("jobs", json_tree.merge_patch(self.job, {"metadata": {"annotations": keys}}))

    def heard(self) -> None:
        """Its worker asks the service."""
        self.pod_signals.note_answer("default/job", self.signals.of(self.job))

    def told_to_stop(self) -> Json:
        """What its pod is told, which does not ask for a while."""
        self.ask(stop=STOP)
        self.look(NOW)
        (told,) = self.look(NOW + PATIENCE_S)
        return told

    def look(self, now: float) -> Sequence[Json]:
        """One cycle: the signals that are written onto the pod in it."""
        row = job_row(self.job, now=now)
        assert isinstance(row, Job)
        state = ClusterState(now=now, nodes=(), jobs=(row,))
        patches = self.pod_signals.build_patches(state, now, guard=Guard("test"))
        for patch in patches:
            assert (patch.kind, patch.id) == ("pods", json_tree.object_id(self.pod))
            self.put("pods", json_tree.merge_patch(self.pod, patch.body))
        return [json.loads(json_tree.annotations_of(self.pod)[names.SIGNAL]) for _ in patches]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


STOP = json.dumps({"at": NOW, "for": "default/other"})


def test_a_pod_is_told_when_nobody_has_asked_for_a_while(cluster: Cluster) -> None:
    cluster.ask(stop=STOP)
    assert cluster.look(NOW) == []
    assert cluster.pod_signals.due_at == NOW + PATIENCE_S
    (told,) = cluster.look(NOW + PATIENCE_S)
    assert told["stop"] is True
    assert cluster.look(NOW + PATIENCE_S + 1.0) == [], "once"


def test_a_worker_that_asks_is_not_told_twice(cluster: Cluster) -> None:
    cluster.ask(stop=STOP)
    cluster.look(NOW)
    cluster.heard()
    assert cluster.look(NOW + 10 * PATIENCE_S) == []


def test_having_asked_before_the_change_does_not_count(cluster: Cluster) -> None:
    cluster.heard()
    told = cluster.told_to_stop()
    assert told["stop"] is True


def test_a_pod_that_was_told_hears_of_the_withdrawal_at_once(cluster: Cluster) -> None:
    cluster.told_to_stop()
    cluster.ask(stop=None)
    (told,) = cluster.look(NOW + PATIENCE_S + 1.0)
    assert told["stop"] is False


def test_a_service_started_anew_knows_which_pods_were_told(cluster: Cluster) -> None:
    cluster.told_to_stop()
    later = Cluster()
    later.put("pods", cluster.pod)
    (told,) = later.look(NOW + 60.0)
    assert told["stop"] is False


def test_that_a_worker_waits_is_read_in_its_log(cluster: Cluster) -> None:
    told = cluster.told_to_stop()
    said = format_parked_line(epoch=7, generation=told["generation"])
    cluster.log_text = f"loss 0.1\nlaxity: {said}\n"
    cluster.look(NOW + PATIENCE_S + 1.0)
    cluster.pod_signals.close()
    assert cluster.pod_signals.report_of("uid-of-job").parked_epoch == 7
    assert cluster.news == ["news"]


def test_an_older_word_in_the_log_is_not_believed(cluster: Cluster) -> None:
    told = cluster.told_to_stop()
    said = format_parked_line(epoch=3, generation=told["generation"] - 1)
    cluster.log_text = f"laxity: {said}\n"
    cluster.look(NOW + PATIENCE_S + 1.0)
    cluster.pod_signals.close()
    assert cluster.pod_signals.report_of("uid-of-job").parked_epoch is None


def test_what_was_read_is_forgotten_when_nobody_asks_it_to_stop(cluster: Cluster) -> None:
    told = cluster.told_to_stop()
    cluster.log_text = f"laxity: {format_parked_line(epoch=7, generation=told['generation'])}\n"
    cluster.look(NOW + PATIENCE_S + 1.0)
    cluster.pod_signals.close()
    cluster.ask(stop=None)
    cluster.look(NOW + PATIENCE_S + 2.0)
    assert cluster.pod_signals.report_of("uid-of-job").parked_epoch is None
