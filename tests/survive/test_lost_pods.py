"""A pod that is lost after its start has its time to come again, before its job is made narrower."""

from laxity import names
from laxity_k8s.cluster_api import Json, Listing
from laxity_k8s.objects.jobs import NO_REPORT
from laxity_k8s.objects.status_annotation import JobStatusRecord
from laxity_k8s.observe.cluster_cache import Mirror
from laxity_k8s.observe.snapshot import Snapshot
from laxity_scheduler.model.job import Job
from tests.support.manifests import CREATED_AT, EVER_SUSPENDED, SUSPENDED, job, pod

LONG_AGO = CREATED_AT
NOW = CREATED_AT + 3_600.0
FIT_S = 60.0


class Nothing:
    """A cluster without objects and without news."""

    def list(self, kind: str) -> Listing:
        return Listing((), "0")

    def watch(self, kind: str, **_: object) -> None:
        return None


class Seen:
    """One job of two workers that started long ago; `look` is one observation."""

    def __init__(self) -> None:
        self.mirror = Mirror(Nothing(), lambda: None)  # type: ignore[arg-type]
        self.snapshot = Snapshot(self.mirror, lambda _: NO_REPORT, fit_within_s=FIT_S)
        self.revision = 10
        made = job(width=2, suspend=False, nodes='["a", "a"]', status=EVER_SUSPENDED)
        state = JobStatusRecord(resumed_at=LONG_AGO, width_changed_at=LONG_AGO, wanted=2)
        made["metadata"]["annotations"][names.STATUS] = state.to_text()
        self.put("jobs", made)

    def put(self, kind: str, thing: Json) -> None:
        self.revision += 1
        meta = {**thing["metadata"], "resourceVersion": str(self.revision)}
        self.mirror.put_object(kind, {**thing, "metadata": meta})  # type: ignore[arg-type]

    def has(self, status: Json) -> None:
        """The job controller has written this."""
        (job,) = self.mirror.jobs.values()
        self.put("jobs", {**job, "status": status})

    def lose(self, index: int) -> None:
        (name,) = [key for key in self.mirror.pods if f"-{index}-" in key]
        self.mirror.drop_object("pods", name)

    def look(self, now: float) -> Job:
        with self.mirror.take_dirty() as (touched, nodes):
            (row,) = self.snapshot.take_state(touched, nodes=nodes, now=now, cycle=1).jobs
        return row


def trained_for_an_hour() -> Seen:
    seen = Seen()
    for index in (0, 1):
        seen.put("pods", pod(index, node="a"))
    assert seen.look(NOW).fitting_workers is None
    return seen


def test_a_worker_that_is_being_replaced_is_waited_for() -> None:
    seen = trained_for_an_hour()
    seen.lose(0)
    assert seen.look(NOW + 1.0).fitting_workers is None
    seen.put("pods", pod(0, node="a", phase="Pending"))
    assert seen.look(NOW + 5.0).fitting_workers is None
    assert seen.snapshot.due_at == NOW + 1.0 + FIT_S


def test_one_that_does_not_come_again_in_time_does_not_fit() -> None:
    seen = trained_for_an_hour()
    seen.lose(1)
    seen.look(NOW + 1.0)
    assert seen.look(NOW + 1.0 + FIT_S).fitting_workers == 1


def test_the_time_begins_anew_once_all_have_run() -> None:
    seen = trained_for_an_hour()
    seen.lose(1)
    seen.look(NOW + 1.0)
    seen.put("pods", pod(1, node="a"))
    seen.look(NOW + 50.0)
    seen.lose(1)
    seen.look(NOW + 55.0)
    assert seen.look(NOW + 100.0).fitting_workers is None
    assert seen.look(NOW + 55.0 + FIT_S).fitting_workers == 1


def test_a_service_started_anew_waits_once_more() -> None:
    seen = Seen()
    seen.put("pods", pod(0, node="a"))
    assert seen.look(NOW).fitting_workers is None
    assert seen.look(NOW + FIT_S).fitting_workers == 1


def test_the_time_of_pods_begins_when_the_job_controller_has_seen_the_start() -> None:
    seen = Seen()
    seen.has(SUSPENDED)
    assert seen.look(NOW).fitting_workers is None
    assert seen.look(NOW + 5 * FIT_S).fitting_workers is None
    seen.has(EVER_SUSPENDED)
    assert seen.look(NOW + 6 * FIT_S).fitting_workers is None
    assert seen.look(NOW + 7 * FIT_S - 1.0).fitting_workers is None
    assert seen.look(NOW + 7 * FIT_S).fitting_workers == 0


def test_a_job_that_is_gone_with_its_pods_leaves_nothing_behind() -> None:
    seen = trained_for_an_hour()
    ((job_id, made),) = seen.mirror.jobs.items()
    for index in (0, 1):
        seen.lose(index)
    seen.look(NOW + 1.0)
    seen.snapshot.reject(job_id, "it makes no sense")
    seen.mirror.drop_object("jobs", job_id)
    with seen.mirror.take_dirty() as (touched, nodes):
        assert not seen.snapshot.take_state(touched, nodes=nodes, now=NOW + 2.0, cycle=1).jobs
    assert seen.snapshot.wait_anew(NOW + 3.0) == ()
    seen.put("jobs", made)
    assert seen.look(NOW + 4.0).id == job_id, "no rejection is left of it"
