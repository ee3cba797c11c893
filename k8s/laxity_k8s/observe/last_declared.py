"""What each Job declared when it last made sense.

A promise is not lost by a slip of the pen: a Job that has a promise or a forecast goes on by what it
declared before, until its annotations make sense again. This is known in memory only. After a restart
such a Job is left out meanwhile, and keeps its verdict.
"""

from dataclasses import replace
from typing import Final

from laxity import json_tree
from laxity.job.qos import QoSError
from laxity.job.spec import TrainingSpec
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.jobs import BadJob, bad_job, spec_of
from laxity_k8s.objects.status_annotation import read_verdict
from laxity_scheduler.model.job import Forecast, Promise

GOES_ON: Final = "until this is mended it goes on by what it declared before"


class LastDeclared:
    """Specs by Job, each with the uid of the Job that declared it."""

    def __init__(self) -> None:
        self._specs: dict[str, tuple[str, TrainingSpec]] = {}

    def read(self, job: Json) -> tuple[TrainingSpec | None, BadJob | None]:
        """What this Job is to be counted by, and what is wrong with what it says now."""
        job_id, uid = json_tree.object_id(job), str(json_tree.get_in(job, "metadata", "uid"))
        try:
            spec = spec_of(job)
        except QoSError as error:
            bad = bad_job(job, error)
        else:
            self._specs[job_id] = uid, spec
            return spec, None
        if not isinstance(read_verdict(job), Promise | Forecast):
            return None, bad
        bad = replace(bad, put_off=True)
        last_uid, last = self._specs.get(job_id, ("", None))
        if last is None or last_uid != uid:
            return None, bad
        return last, replace(bad, problems=(*bad.problems, GOES_ON))

    def forget(self, job_id: str) -> None:
        self._specs.pop(job_id, None)
