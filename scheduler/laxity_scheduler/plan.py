"""What to do, as values: decisions with reasons, in order. `plan_check` says whether they fit a snapshot."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from laxity_profiler.estimate import Predictor
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Decision, Loan, Reclaim
from laxity_scheduler.model.job import FOREVER


@dataclass(frozen=True, slots=True)
class Misfit:
    """A decision that does not fit, and what is wrong with it."""

    decision: Decision
    problem: str

    @property
    def about(self) -> str:
        """The job that it is about, or the nodes."""
        return _subject(self.decision)

    def __str__(self) -> str:
        return f"{_decision_title(self.decision)}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Plan:
    """Decisions in order. At `wake_at` the same state, merely older, would be decided otherwise.

    What was `dropped` did not fit, and is no part of the plan.
    """

    decisions: tuple[Decision, ...] = ()
    wake_at: float = FOREVER
    dropped: tuple[Misfit, ...] = field(default=(), compare=False)


Policy = Callable[[ClusterState, Predictor], Plan]


def _decision_title(decision: Decision) -> str:
    job = "" if isinstance(decision, Loan | Reclaim) else "job "
    return f"{type(decision).__name__} of {job}{_subject(decision)}"


def _subject(decision: Decision) -> str:
    """The job, or the nodes."""
    return list_names(decision.nodes) if isinstance(decision, Loan | Reclaim) else decision.job


def list_names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown}, and {len(names) - 5} more" if len(names) > 5 else shown
