"""What the workers of a Job are told, read from the Job alone."""

import re
import threading
from dataclasses import replace
from typing import Final

from laxity import json_tree, names
from laxity.job.signal import Signal
from laxity.parsing import whole_number
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import pods

_LAST_ID: Final = re.compile(r"/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/?")


class Signals:
    """Signals by Job.

    The generation is the revision at which a signal was first seen to differ: it grows with every
    change, and after a restart it is never less than before.
    """

    def __init__(self) -> None:
        self._last: dict[str, Signal] = {}
        self._lock = threading.Lock()

    def of(self, job: Json) -> Signal:
        annotations = json_tree.annotations_of(job)
        resize_to = whole_number(annotations.get(names.RESIZE_TO))
        now = Signal(
            stop=names.STOP in annotations or bool(json_tree.get_in(job, "spec", "suspend")),
            workers=resize_to
            or pods.count_of(json_tree.get_in(job, "spec", "parallelism"))
            or None,
            run_id=annotations.get(names.RUN_ID, "").rpartition("/")[2],
            flow_run=_flow_run(annotations.get(names.FOLLOWED_BY, "")),
            generation=json_tree.revision_of(job),
        )
        key = str(json_tree.get_in(job, "metadata", "uid") or json_tree.object_id(job))
        with self._lock:
            before = self._last.get(key)
            if before is not None and before == replace(now, generation=before.generation):
                return before
            self._last[key] = now
        return now


def _flow_run(page: str) -> str:
    """The id of the flow run that this page shows; "" if it shows none."""
    match = _LAST_ID.fullmatch(page[page.rstrip("/").rfind("/") :])
    return match[1] if match else ""
