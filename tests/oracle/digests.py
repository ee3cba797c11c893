"""What every policy decides and what its simulations give, as digests.

`small` is for two processes with different hash seeds, which must agree to the last bit. `whole` is
the oracle: of its figures nine digits count, since processors differ in the last ones.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.bench_decisions import later
from laxity_lab.simulate.report import report
from laxity_lab.simulate.run import Setting, simulate
from laxity_lab.traces.cases import Source
from laxity_lab.traces.generate import Mix, generate
from laxity_lab.traces.trace_lookup import SAMPLES
from laxity_lab.traces.traces import Format, Trace
from laxity_lab.world.crowd import crowd, underway
from laxity_lab.world.noisy_predictor import NoisyPredictor
from laxity_lab.world.outcome import Run
from laxity_scheduler.plan import Plan
from laxity_scheduler.plan_check import apply_plan
from laxity_scheduler.policies.registry import REGISTRY, find
from laxity_scheduler.simulated.change_costs import costs
from laxity_scheduler.store import codec
from tests.support.random_states import drawn

Encode = Callable[[Any], bytes]

FEW_STATES: Final = 40
STATES: Final = 1_000
DIGITS: Final = 9
WARM: Final = 3
TIMES = ("cpu_s", "wall_s", "jobs_per_s", "decision_p50_ms", "decision_p95_ms", "decision_p99_ms")
CROWDS: Final[dict[str, dict[str, Any]]] = {
    "ordinary": {"nodes": 5_000},
    "contended": {"nodes": 500},
    "tied": {"nodes": 5_000, "tied": 0.1},
}


def small(name: str) -> str:
    """One digest of a policy: its plans of a few states, and three simulations of a small trace."""
    decide = find(name).policy()
    plans = (codec.plan_bytes(decide(case.state, case.predictor)) for case in drawn(FEW_STATES))
    jobs = generate(Mix(jobs=15, jobs_per_hour=40.0, best_effort=0.3), seed=1)
    settings = (
        Setting(name, 2, 8, cost_model="flat", error=0.2, seed=3),
        Setting(name, 2, 8, cost_model="live", error=0.2, seed=3, literal_cycle=True),
        Setting(name, 2, 8, cost_model="live", seed=4, fails_s=9_000.0, repair_s=900.0),
    )
    runs = (run_bytes(simulate(jobs, setting)) for setting in settings)
    return digest([*plans, *runs])


def whole(name: str) -> dict[str, str]:
    """The oracle of a policy; of the plans of states four digits each, so that it says which."""
    made = {"states": plans_of_states(name)}
    made |= {f"crowd, {kind}": decisions_about(name, kind) for kind in CROWDS}
    return made | {kind: digest([run()]) for kind, run in simulations(name)}


def plans_of_states(name: str) -> str:
    decide = find(name).policy()
    plans = (decide(case.state, case.predictor) for case in drawn(STATES))
    return " ".join(digest([_plan_bytes(plan)])[:4] for plan in plans)


def decisions_about(name: str, kind: str) -> str:
    """A cold decision about 10,000 jobs, and warm ones after it."""
    truths, state = crowd(jobs=10_000, seed=0, **CROWDS[kind])
    predictor = NoisyPredictor(truths, costs("live", cluster_gpus=state.total_gpus))
    decide = find(name).policy()
    plans = [decide(state, predictor)]
    state = underway(apply_plan(plans[0], state), np.random.default_rng(2))
    for _ in range(WARM):
        plans.append(decide(state, predictor))
        state = later(apply_plan(plans[-1], state))
    return digest(map(_plan_bytes, plans))


def simulations(name: str) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """The samples that ship, at rest and in want, as one pool and by nodes, in the cost models."""
    itp: dict[str, Setting] = {
        "flat": Setting(name, 8, 8, pooled=True),
        "live": Setting(name, 4, 8, cost_model="live", error=0.2, seed=1),
        "elasticflow": Setting(name, 4, 8, pooled=True, cost_model="elasticflow"),
        "free": Setting(name, 4, 8, pooled=True, cost_model="free"),
        "each epoch": Setting(name, 4, 8, cost_model="live", each_epoch=True, epoch_s=600.0),
    }
    for kind, setting in itp.items():
        yield f"itp, {kind}", partial(_run_of, "itp", setting)
    failing = Setting(name, 8, 8, error=0.4, seed=2, fails_s=90_000.0)
    yield "philly, failing", partial(_run_of, "philly", failing)


def _run_of(format_: Format, setting: Setting) -> bytes:
    return run_bytes(simulate(sample(format_), setting), rounded)


@cache
def sample(format_: Format) -> Trace:
    tables = SAMPLES / "elasticflow" / "throughputs_A100"
    paths: dict[Format, Path] = {
        "itp": SAMPLES / "itp" / "195job.csv",
        "philly": SAMPLES / "philly" / "philly.csv",
    }
    return Source(paths[format_], format_, tables).load()


def exact(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def rounded(value: Any) -> bytes:
    return exact(_rounded(value))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(part) for part in value]
    return value


def _plan_bytes(plan: Plan) -> bytes:
    return rounded(json.loads(codec.plan_bytes(plan)))


def run_bytes(run: Run, encode: Encode = exact) -> bytes:
    """A run and its report, but for how long they took; no plan may have needed a repair."""
    figures = {name: value for name, value in report(run).items() if name not in TIMES}
    assert figures.pop("decisions_dropped") == 0
    told = [figures, list(run.ids), sorted(run.refused.items()), list(run.busy), run.events]
    columns = [run.column(name).tolist() for name in sorted(run.columns)]
    return encode([told, columns])


def digest(parts: Iterable[bytes]) -> str:
    whole_digest = hashlib.sha256()
    for part in parts:
        whole_digest.update(len(part).to_bytes(8, "big") + part)
    return whole_digest.hexdigest()


if __name__ == "__main__":
    print(json.dumps({name: small(name) for name in sorted(REGISTRY)}))  # noqa: T201 - compared
