"""What is raised about one object is that object's problem: all others are served in the same pass.

Jobs, pods and nodes are written by anybody, and one that nobody thought of must not end a cycle for
everybody else. Errors of what all of them stand on, a disk or an API server, are nobody's and pass.
"""

import logging
import sqlite3
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from laxity_k8s.cluster_api import ApiError

LOG: Final = logging.getLogger(__name__)
SHARED: Final = (sqlite3.Error, ApiError)
LONGEST: Final = 500  # characters of a problem
MOST_KNOWN: Final = 10_000
Given = ParamSpec("Given")
Made = TypeVar("Made")


class Guard:
    """Does work about one object after the other. `problems` holds what each raised last, by key.

    `on_problem(key, problem)` is called whenever something was raised. The traceback is logged when
    it is another problem than the last one of this object.
    """

    def __init__(
        self, on_problem: Callable[[str, str], None] = lambda _key, _problem: None
    ) -> None:
        self.problems: dict[str, str] = {}
        self._on_problem = on_problem

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
            self._note_error(key, error)
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

    def _note_error(self, key: str, error: Exception) -> None:
        problem = problem_of(error)
        if self.problems.pop(key, None) != problem:
            LOG.error("%s is left out: %s", key, problem, exc_info=error)
        self.problems[key] = problem
        if len(self.problems) > MOST_KNOWN:
            self.problems.pop(next(iter(self.problems)), None)
        self._on_problem(key, problem)


def problem_of(error: Exception) -> str:
    """The exception as a reason on its object: its type and its message."""
    text = f"{type(error).__name__}: {error}"
    return text.encode(errors="replace").decode()[:LONGEST]
