"""A job of two workers that started long ago, as a service sees it."""

from laxity import names
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.status_annotation import JobStatusRecord
from laxity_scheduler.model.job import Job
from tests.support.empty_cluster import Observed
from tests.support.manifests import CREATED_AT, EVER_SUSPENDED, job, pod

LONG_AGO = CREATED_AT


NOW = CREATED_AT + 3_600.0


FIT_S = 60.0


class Seen(Observed):
    """One job of two workers that started long ago; `look` is one observation."""

    def __init__(self) -> None:
        super().__init__(fit_within_s=FIT_S)
        made = job(width=2, suspend=False, nodes='["a", "a"]', status=EVER_SUSPENDED)
        state = JobStatusRecord(resumed_at=LONG_AGO, width_changed_at=LONG_AGO, wanted=2)
        made["metadata"]["annotations"][names.STATUS] = state.to_text()
        self.put(made)

    def has(self, status: Json) -> None:
        """The job controller has written this."""
        (job,) = self.cache.jobs.values()
        self.put({**job, "status": status})

    def lose(self, index: int) -> None:
        (name,) = [key for key in self.cache.pods if f"-{index}-" in key]
        self.cache.drop_object("pods", name)

    def look(self, now: float) -> Job:
        (row,) = self.observe(now).jobs
        return row

    def free_gpus(self, now: float) -> int:
        return sum(node.free_gpus for node in self.observe(now).nodes)


def trained_for_an_hour() -> Seen:
    seen = Seen()
    for index in (0, 1):
        seen.put(pod(index, node="a"))
    assert seen.look(NOW).fitting_workers is None
    return seen
