"""Steps drawn by their probabilities, in place of the best ones."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from laxity_lab.policy_training.step_walk import StepWalk
from laxity_profiler.estimate import Floats
from laxity_scheduler.learned.allocation_loop import Take
from laxity_scheduler.learned.job_features import JobSteps, free_level, stop_rows
from laxity_scheduler.learned.scoring_net import ScoringNet, masked_softmax


@dataclass(frozen=True, slots=True)
class DrawnStep:
    """`place` of the rows, (n, F), was taken: the last one is to stop. `job` is whose step it was."""

    rows: Floats
    place: int
    job: int | None


@dataclass(slots=True)
class StepSampler:
    """Draws steps, and records them."""

    draw: np.random.Generator
    drawn: list[DrawnStep] = field(default_factory=list)

    def widen(
        self, widths: list[int], steps: JobSteps, net: ScoringNet, take: Take, free_gpus: int
    ) -> None:
        scores, ends = net.score(steps.features), stop_rows(steps)
        stops, walk = net.score(ends), StepWalk(steps, widths, free_gpus)
        while rows := walk.fitting():
            level = free_level(walk.free_gpus, steps.cluster_gpus)
            owners = [int(steps.job[row]) for row in rows]
            place = self.choose(np.append(scores[rows], stops[level]), owners, widths)
            job = owners[place] if place < len(rows) else None
            self.drawn.append(DrawnStep(np.vstack([steps.features[rows], ends[level]]), place, job))
            if job is None:
                return
            take(job, widths[job], walk.take(rows[place]))

    def choose(self, scores: Floats, owners: Sequence[int], widths: Sequence[int]) -> int:
        """Which of the steps, or the place after them: to stop."""
        shares = masked_softmax(scores, np.ones(len(scores), dtype=np.bool_))
        return int(self.draw.choice(len(scores), p=shares))
