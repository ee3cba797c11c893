"""Twenty chains and more of four links on a real Slurm beside other jobs: who submits ahead stands less still."""

import itertools
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import numpy as np
import pytest

from tests.support.chain_figures import mean_difference
from tests.support.processes import run_command
from tests.support.slurm import WHY_NOT, SlurmCluster

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT),
    pytest.mark.timeout(7200),
]
COMMAND: Final = Path(__file__).parents[1] / "support" / "programs" / "chaining.py"
METHODS: Final = ("reactive", "slurm_estimate")
CHAINS: Final = 10  # of each method, at once
ROUNDS: Final = int(os.environ.get("LAXITY_SOAK_ROUNDS", "2"))
NODES, WAITING = 28, 18
EPOCHS: Final = 180  # a link of a minute holds some fifty
MOST_S: Final = 1800.0
SHORTEST_S, LONGEST_S = 10, 41
LOOK_S: Final = 1.0

# One line an epoch: number, link, start, end. A link stops some seconds before its time limit.
SCRIPT: Final = f"""#!/bin/bash
#SBATCH --time=1 --output=/dev/null
lines=$LAXITY_CHAIN_FOLDER/epochs
n=$(cat "$lines" 2>/dev/null | wc -l)
while [ "$n" -lt {EPOCHS} ] && [ "$(date +%s)" -lt $(( LAXITY_ENDS_AT - 3 )) ]; do
  start=$(date +%s.%N); sleep 1; n=$(( n + 1 ))
  echo "$n $LAXITY_CHAIN_LINK $start $(date +%s.%N)" >>"$lines"
done
[ "$n" -lt {EPOCHS} ] || touch "$LAXITY_CHAIN_FOLDER/done"
"""


@dataclass(frozen=True)
class Outcome:
    """One chain that was completed. Seconds in which nothing trained, and in which two held a node."""

    links: int
    numbers: list[int]
    interruption_s: float
    overlap_s: float


def outcome_of(folder: Path) -> Outcome:
    rows = [line.split() for line in (folder / "epochs").read_text().splitlines()]
    begun = {link: float(start) for _, link, start, _ in reversed(rows)}
    ended = {link: float(end) for _, link, _, end in rows}
    links = list(ended)
    started = {
        str(link["seq"]): link["started_at"]
        for link in json.loads((folder / "chain.json").read_text())["links"]
    }
    pairs = list(itertools.pairwise(links))
    return Outcome(
        links=len(links),
        numbers=[int(row[0]) for row in rows],
        interruption_s=sum(begun[after] - ended[before] for before, after in pairs),
        overlap_s=sum(max(0.0, ended[before] - started[after]) for before, after in pairs),
    )


@contextmanager
def others(cluster: SlurmCluster, rng: np.random.Generator) -> Iterator[None]:
    """So many jobs of others wait all the time; each runs for some seconds."""
    over = Event()

    def feed() -> None:
        while not over.wait(LOOK_S):
            waiting = cluster.ask("squeue", "-h", "-t", "PENDING", "-n", "other", "-o", "%i")
            for run_s in rng.integers(SHORTEST_S, LONGEST_S, WAITING - len(waiting.split())):
                cluster.ask(
                    "sbatch",
                    "--time=1",
                    "--output=/dev/null",
                    "-J",
                    "other",
                    f"--wrap=sleep {run_s}",
                )

    thread = Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def run_chain(cluster: SlurmCluster, place: Path, method: str) -> Outcome:
    place.mkdir(parents=True)
    (place / "train.sbatch").write_text(SCRIPT)
    command = [sys.executable, str(COMMAND), "train.sbatch", "--interval", "3s", "--method", method]
    ended = run_command(*command, env=cluster.environment, cwd=place, timeout=MOST_S)  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return outcome_of(place / "train.chain")


def test_chains_that_submit_ahead_stand_less_still_than_reactive_ones(tmp_path: Path) -> None:
    """All chains of a round share one queue, both methods at once."""
    cluster, rng = SlurmCluster(tmp_path / "slurm", NODES), np.random.default_rng(5)
    outcomes: dict[str, list[Outcome]] = {method: [] for method in METHODS}
    try:
        cluster.up()
        for number in range(ROUNDS):
            with others(cluster, rng), ThreadPoolExecutor(CHAINS * len(METHODS)) as pool:
                made = {
                    pool.submit(
                        run_chain, cluster, tmp_path / f"{number}-{method}-{n}", method
                    ): method
                    for n in range(CHAINS)
                    for method in METHODS
                }
                for future, method in made.items():
                    outcomes[method].append(future.result())
    finally:
        cluster.down()

    figures: dict[str, Any] = {
        method: {
            "chains": len(ended),
            "links": sorted({one.links for one in ended}),
            "interruption_s": float(np.mean([one.interruption_s for one in ended])),
            "overlap_s": float(np.mean([one.overlap_s for one in ended])),
        }
        for method, ended in outcomes.items()
    }
    still = {method: [one.interruption_s for one in ended] for method, ended in outcomes.items()}
    figures["difference_s"] = mean_difference(still["reactive"], still["slurm_estimate"])
    (tmp_path / "figures.json").write_text(json.dumps(figures))
    for one in (*outcomes["reactive"], *outcomes["slurm_estimate"]):
        assert one.numbers == list(range(1, EPOCHS + 1)), "each epoch exactly once"
        assert one.links >= 4
    assert figures["slurm_estimate"]["chains"] >= CHAINS
    assert figures["difference_s"][2] < 0.0, figures
