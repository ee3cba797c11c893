"""The cluster of slots as a Gymnasium environment; this module alone imports Gymnasium.

DL2's problem at a fixed number J of jobs (algorithms.md 6.2, 6.3, 6.6), with the features and the
actions of the learned policy, so that any library that knows Gymnasium can train on it:

    observation   (J + 1, F): the next step of each of the first J jobs, by arrival, then stopping
    action        i < J: job i gets its next width; J: stop, so the slot is trained
    reward        sum over jobs of the share of their iterations that they trained; 0 within a slot

What is masked (`action_masks`) ends the slot as well, as the first misfit does in DL2. Jobs beyond
J train at their least width. Rows of jobs that can take no step are zeros.
"""

from collections.abc import Callable
from typing import Any, Final

import gymnasium
import numpy as np
from numpy.typing import NDArray

from laxity_lab.policy_training.slot_environment import MOST_SLOTS, SlotCluster
from laxity_lab.policy_training.step_walk import StepWalk
from laxity_lab.policy_training.training_worlds import World, draw_world
from laxity_lab.traces.throughput_tables import Tables
from laxity_scheduler.frame.arrays import Bools
from laxity_scheduler.learned.job_features import FEATURES, free_level, stop_rows

JOBS: Final = 20  # DL2's J for clusters of up to 96 nodes

Observation = NDArray[np.float32]
WorldMaker = Callable[[np.random.Generator], World]


class AllocationEnv(gymnasium.Env[Observation, int]):  # type: ignore[misc]  # mypy follows no extra
    """One episode is one world of jobs, until all have ended; `worlds` draws the next one."""

    def __init__(self, worlds: WorldMaker, *, jobs: int = JOBS) -> None:
        self._worlds, self._most_jobs = worlds, jobs
        shape = (jobs + 1, len(FEATURES))
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, shape, np.float32)
        self.action_space = gymnasium.spaces.Discrete(jobs + 1)
        self._cluster: SlotCluster
        self._walk: StepWalk
        self._slots = 0

    @classmethod
    def from_tables(cls, tables: Tables, *, jobs: int = JOBS) -> "AllocationEnv":
        """Worlds as those that `laxity train policy` improves a net in."""
        return cls(lambda draw: draw_world(tables, draw), jobs=jobs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self._cluster = SlotCluster(*self._worlds(self.np_random))
        self._slots, self._walk = 0, self._cluster.begin_walk()
        return self._observe(), {}

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        row = self._fitting_rows().get(int(action))
        if row is not None:
            self._walk.take(row)
            return self._observe(), 0.0, False, False, {}
        reward = self._cluster.train(self._walk.widths)
        self._slots += 1
        done = self._cluster.done
        info = {"jct_s": list(self._cluster.jct_s)} if done else {}
        if not done:
            self._walk = self._cluster.begin_walk()
        return self._observe(), reward, done, self._slots >= MOST_SLOTS, info

    def action_masks(self) -> Bools:
        """Shape (J + 1,): which actions are possible; stopping always is."""
        mask = np.zeros(self._most_jobs + 1, dtype=np.bool_)
        mask[[*self._fitting_rows(), self._most_jobs]] = True
        return mask

    def _fitting_rows(self) -> dict[int, int]:
        """The row of the next step, by job."""
        if self._cluster.done:
            return {}
        job = self._walk.steps.job
        rows = {int(job[row]): row for row in self._walk.fitting()}
        return {number: row for number, row in rows.items() if number < self._most_jobs}

    def _observe(self) -> Observation:
        observation = np.zeros((self._most_jobs + 1, len(FEATURES)), dtype=np.float32)
        steps = self._walk.steps
        for number, row in self._fitting_rows().items():
            observation[number] = steps.features[row]
        observation[-1] = stop_rows(steps)[free_level(self._walk.free_gpus, steps.cluster_gpus)]
        return observation
