"""Prints what every policy decides and what its simulations give, as digests: `python -m` runs it.

Two processes with different hash seeds must print the same.
"""

import hashlib
import json
from collections.abc import Iterator

from laxity_scheduler.memory import codec
from laxity_scheduler.simulate.catalogue import decide_of, listed
from laxity_scheduler.simulate.generate import Mix, generate
from laxity_scheduler.simulate.outcome import Run
from laxity_scheduler.simulate.report import report
from laxity_scheduler.simulate.run import Setting, simulate
from tests.contract.random_states import drawn

STATES = 40
TIMES = ("cpu_s", "wall_s", "jobs_per_s", "decision_p50_ms", "decision_p95_ms", "decision_p99_ms")


def digests() -> dict[str, str]:
    return {name: _digest(_of(name)) for name in sorted(listed())}


def _of(name: str) -> Iterator[bytes]:
    decide = decide_of(name)
    for case in drawn(STATES):
        yield codec.plan_bytes(decide(case.state, case.predictor))
    jobs = generate(Mix(jobs=15, jobs_per_hour=40.0, best_effort=0.3), seed=1)
    for setting in (
        Setting(name, 2, 8, cost_model="flat", error=0.2, seed=3),
        Setting(name, 2, 8, cost_model="live", error=0.2, seed=3, literal_cycle=True),
        Setting(name, 2, 8, cost_model="live", seed=4, fails_s=9_000.0, repair_s=900.0),
    ):
        yield run_bytes(simulate(jobs, setting))


def run_bytes(run: Run) -> bytes:
    """A run and its report, but for how long they took."""
    figures = {name: value for name, value in report(run).items() if name not in TIMES}
    told = [figures, list(run.ids), sorted(run.refused.items()), list(run.busy), run.events]
    columns = b"".join(run.column(name).tobytes() for name in sorted(run.columns))
    return json.dumps(told, sort_keys=True).encode() + columns


def _digest(parts: Iterator[bytes]) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "big") + part)
    return whole.hexdigest()


if __name__ == "__main__":
    print(json.dumps(digests()))  # noqa: T201 - its output is what is compared
