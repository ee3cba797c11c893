"""Which policy decides: that of the settings, or its teacher where a learned one is refused or falls back.

A learned policy decides until its measured reward stays below its teacher's (`reward_guard`), or until
it cannot be read. Then its teacher's rule decides, behind the same promises and by a name of its own
(`optimus_with_promises`), so that the journal is decided again as it was. That it fell back is kept in
the store under the digest of its weights: it lasts over restarts until other weights are put in force.
"""

import logging
from typing import Any, Final

from laxity_profiler.estimate import Predictor
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.plan import Policy
from laxity_scheduler.policies.learned import decide_by
from laxity_scheduler.policies.registry import find
from laxity_scheduler.service.learned_models import LearnedModel
from laxity_scheduler.service.reward_guard import RewardComparison, RewardGuard
from laxity_scheduler.service.views.view_fields import Json
from laxity_scheduler.store.store import Store, StoreError
from laxity_scheduler.store.tables import FallbackRow

LOG: Final = logging.getLogger(__name__)


class PolicyInForce:
    """`name` and `decide` are those of who decides now. Only the loop's thread changes them."""

    def __init__(self, name: str, decide: Policy, store: Store | None = None) -> None:
        self.name, self.decide = name, decide
        self.model: LearnedModel | None = None
        self.fallback = ""  # why the teacher decides
        self.comparison = RewardComparison(0, 0.0, 0.0)
        self._store = store
        self._guard: RewardGuard | None = None
        self._next: LearnedModel | None = None

    def offer(self, model: LearnedModel) -> None:
        """Put a learned policy in force from the next cycle on. Any thread may call this."""
        self._next = model

    def begin_cycle(self) -> None:
        """Adopt what was offered; StoreError leaves it for the next cycle."""
        model = self._next
        if model is None or model is self.model:
            return
        if model == self.model:  # only whether MLflow could be asked may have changed
            self.model = model
            return
        problem = model.refusal or self._read_fallback(model)
        before, self.model, self._guard, self.fallback = self.model, model, None, ""
        self.comparison = RewardComparison(0, 0.0, 0.0)
        if problem or model.trained is None:
            self._let_teacher_decide(problem)
            return
        self.name, self.decide = model.name, decide_by(model.trained.net)
        self._guard = RewardGuard(model.teacher)
        if model.stale:
            LOG.warning("%s decides: %s", model.name, model.stale)
        elif before is not None:
            LOG.info("%s decides from now on, in place of %s", model.name, before.name)

    def observe(self, state: ClusterState, predictor: Predictor) -> None:
        """Compare a learned policy with its teacher on a snapshot that was decided on."""
        if self._guard is None or self.model is None:
            return
        self._guard.observe(state, predictor)
        comparison = self.comparison = self._guard.comparison
        if not comparison.falls_short:
            return
        problem = (
            f"its measured reward was {comparison.measured:.3g} in {comparison.slots} slots, "
            f"{self.model.teacher}'s would have been {comparison.teacher:.3g}"
        )
        self._guard = None
        self._let_teacher_decide(problem)
        self._keep_fallback(state.now, problem)

    def view(self) -> Json:
        """For people and programs."""
        model, comparison = self.model, self.comparison
        return {
            "in_force": self.name,
            "learned": None if model is None else model.name,
            "teacher": None if model is None else model.teacher,
            "fallback": self.fallback,
            "stale": "" if model is None else model.stale,
            "slots": comparison.slots,
            "reward": comparison.measured,
            "teacher_reward": comparison.teacher,
        }

    def _let_teacher_decide(self, problem: str) -> None:
        assert self.model is not None  # noqa: S101 - a fallback is of a learned policy
        self.fallback, self.name = problem, self.model.fallback_policy
        self.decide = find(self.name).policy()
        LOG.warning("%s decides in place of %s: %s", self.name, self.model.name, problem)

    def _read_fallback(self, model: LearnedModel) -> str:
        """Why these weights fell back before; "" if they did not."""
        if self._store is None:
            return ""
        row = self._store.load_row(FallbackRow, model.digest)
        return "" if row is None else row.reason

    def _keep_fallback(self, now: float, problem: str) -> None:
        if self._store is None or self.model is None:
            return
        row: Any = FallbackRow(
            digest=self.model.digest, policy=self.model.name, at=now, reason=problem
        )
        try:
            self._store.write_rows([row])
        except StoreError as error:
            LOG.warning("after a restart %s decides again: %s", self.model.name, error)
