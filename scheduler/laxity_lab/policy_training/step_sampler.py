"""Steps drawn by their probabilities, and now and then for the job that has least: DL2's exploration.

With all-reduce two of DL2's three cases are gone (algorithms.md 6.6, 6.9: workers without a parameter
server, and the reverse). What is left is the release's: where the widest job has over U{3..5} times the
workers of the narrowest one, that one gets the next step, with a stated probability.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from laxity_lab.policy_training.step_walk import StepWalk
from laxity_profiler.estimate import Floats
from laxity_scheduler.learned.allocation_loop import Take
from laxity_scheduler.learned.job_features import JobSteps, free_level, stop_rows
from laxity_scheduler.learned.scoring_net import ScoringNet, masked_softmax

UNEQUAL: Final = (3, 5)  # widest / narrowest, drawn evenly


@dataclass(frozen=True, slots=True)
class DrawnStep:
    """`place` of the rows, (n, F), was taken: the last one is to stop. `job` is whose step it was."""

    rows: Floats
    place: int
    job: int | None


@dataclass(slots=True)
class StepSampler:
    """Draws steps in place of the best ones, and records them; `heads` has each job's first step."""

    draw: np.random.Generator
    exploration: float = 0.0
    drawn: list[DrawnStep] = field(default_factory=list)
    heads: dict[int, Floats] = field(default_factory=dict)

    def widen(
        self, widths: list[int], steps: JobSteps, net: ScoringNet, take: Take, free_gpus: int
    ) -> None:
        scores, ends = net.score(steps.features), stop_rows(steps)
        stops, walk = net.score(ends), StepWalk(steps, widths, free_gpus)
        self.heads = {int(steps.job[row]): steps.features[row] for row in walk.fitting()}
        while rows := walk.fitting():
            level = free_level(walk.free_gpus, steps.cluster_gpus)
            owners = [int(steps.job[row]) for row in rows]
            place = self._choose(np.append(scores[rows], stops[level]), owners, widths)
            job = owners[place] if place < len(rows) else None
            self.drawn.append(DrawnStep(np.vstack([steps.features[rows], ends[level]]), place, job))
            if job is None:
                return
            take(job, widths[job], walk.take(rows[place]))

    def _choose(self, scores: Floats, owners: Sequence[int], widths: Sequence[int]) -> int:
        """Which of the steps, or the place after them: to stop."""
        if self.exploration and self.draw.random() < self.exploration:
            narrowest = min(owners, key=lambda job: widths[job])
            if max(widths) > self.draw.integers(*UNEQUAL, endpoint=True) * widths[narrowest]:
                return owners.index(narrowest)
        shares = masked_softmax(scores, np.ones(len(scores), dtype=np.bool_))
        return int(self.draw.choice(len(scores), p=shares))
