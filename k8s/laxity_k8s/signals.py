"""What the workers of a Job are told, read from the Job alone."""

import threading

from laxity import names
from laxity.parsing import whole_number
from laxity_k8s import merge, pods
from laxity_k8s.api import Json
from laxity_scheduler.live import Signal


class Signals:
    """Signals by Job.

    The generation is the revision at which a signal was first seen to differ: it grows with every
    change, and after a restart it is never less than before.
    """

    def __init__(self) -> None:
        self._last: dict[str, Signal] = {}
        self._lock = threading.Lock()

    def of(self, job: Json) -> Signal:
        said = merge.annotations(job)
        asked = whole_number(said.get(names.RESIZE_TO))
        now = Signal(
            stop=names.STOP in said or bool(merge.dig(job, "spec", "suspend")),
            workers=pods.count(merge.dig(job, "spec", "parallelism")) if asked is None else asked,
            run_id=said.get(names.RUN_ID, "").rpartition("/")[2],
            generation=merge.revision(job),
        )
        key = str(merge.dig(job, "metadata", "uid") or merge.identity(job))
        with self._lock:
            before = self._last.get(key)
            if before is not None and _same(before, now):
                return before
            self._last[key] = now
        return now


def _same(one: Signal, other: Signal) -> bool:
    return (one.stop, one.workers, one.run_id) == (other.stop, other.workers, other.run_id)
