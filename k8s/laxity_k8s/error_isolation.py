"""What is raised about one object is that object's problem: all others are served in the same pass.

Jobs, pods and nodes are written by anybody, and one that nobody thought of must not end a cycle for
everybody else. Errors of what all of them stand on, a disk or an API server, are nobody's and pass.

Errors about Jobs go through the service's `JobFaults`, which counts them. Those about nodes, about the
inference fleet's pods, and of the local cluster (it stands for an API server and kubelets) are logged
in the same way and not counted: no Job is to blame.
"""

import sqlite3
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from laxity_k8s.cluster_api import ApiError
from laxity_scheduler.job_faults import JobFaults, ObjectFaults, error_text

SHARED: Final = (sqlite3.Error, ApiError)
LONGEST: Final = 500  # characters of a problem
Given = ParamSpec("Given")
Made = TypeVar("Made")


class Guard:
    """Does work about one object after the other, at one stage of a cycle.

    `faults` records what is raised; None: it is logged and not counted, for objects that are no Jobs.
    `on_problem(key, problem)` is called whenever something was raised.
    """

    def __init__(
        self,
        stage: str,
        faults: JobFaults | None = None,
        on_problem: Callable[[str, str], None] = lambda _key, _problem: None,
    ) -> None:
        self._stage, self._on_problem = stage, on_problem
        self._faults = faults or ObjectFaults()

    def __call__(
        self,
        key: str,
        work: Callable[Given, Made],
        /,
        *arguments: Given.args,
        **options: Given.kwargs,
    ) -> Made | None:
        """What the work returns; None if it raised."""
        try:
            return work(*arguments, **options)
        except SHARED:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a stranger wrote into an object
            self._faults.record_fault(self._stage, key, error)
            self._on_problem(key, _as_reason(error_text(error)))
            return None

    def run_guarded(
        self,
        key: str,
        work: Callable[Given, object],
        /,
        *arguments: Given.args,
        **options: Given.kwargs,
    ) -> bool:
        """Do the work; whether it raised nothing."""

        def finish() -> bool:
            work(*arguments, **options)
            return True

        return self(key, finish) or False

    def last_problem(self, key: str) -> str:
        """What work about this object raised last."""
        return _as_reason(self._faults.last_fault(self._stage, key))


def _as_reason(text: str) -> str:
    """The text as an object can hold it."""
    return text.encode(errors="replace").decode()[:LONGEST]
