"""MaskablePPO of sb3-contrib, which this module alone imports, on the cluster of slots: a reference.

It learns from nothing, at a fixed number of jobs, with a net that sees all of them at once, as in DL2
(algorithms.md 6.4). What it learns is measured and not kept: laxity decides by a `ScoringNet`.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from sb3_contrib import MaskablePPO

from laxity_lab.policy_training.gym_environment import AllocationEnv
from laxity_lab.policy_training.slot_environment import WorldOutcome
from laxity_lab.policy_training.training_worlds import USUAL, WorldKinds, mean_cost
from laxity_lab.traces.throughput_tables import Tables
from laxity_lab.traces.traces import TraceJob

STEPS_PER_UPDATE: Final = 2_048
BATCH: Final = 256
DISCOUNT: Final = (
    0.99  # per action; rewards of an episode sum to its jobs, so sooner must be better
)


def train_ppo(
    tables: Tables,
    *,
    seed: int,
    steps: int,
    kinds: WorldKinds = USUAL,
    tell: Callable[[int], None] = lambda _: None,
) -> list[float]:
    """The slowdown on the validation worlds at the start and after every tenth of the actions."""
    model = MaskablePPO(
        "MlpPolicy",
        AllocationEnv.from_tables(tables),
        seed=seed,
        n_steps=STEPS_PER_UPDATE,
        batch_size=BATCH,
        gamma=DISCOUNT,
        device="cpu",
    )
    tried = [_slowdown(tables, model, kinds)]
    for _ in range(10):
        model.learn(steps // 10, reset_num_timesteps=False)
        tried.append(_slowdown(tables, model, kinds))
        tell(1)
    return tried


def _slowdown(tables: Tables, model: Any, kinds: WorldKinds) -> float:
    def run_world(jobs: Sequence[TraceJob], gpus: int) -> WorldOutcome:
        env = AllocationEnv(lambda _: (jobs, gpus))
        observation, _ = env.reset()
        while True:
            action, _ = model.predict(
                observation, action_masks=env.action_masks(), deterministic=True
            )
            observation, _, ended, cut, info = env.step(int(action))
            if ended or cut:
                jct_s = info.get("jct_s", [float("inf")])
                return WorldOutcome(float(sum(jct_s) / len(jct_s)), 0.0)

    return mean_cost(tables, run_world, kinds=kinds)
