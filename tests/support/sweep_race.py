"""Sweeps over real trainings of digits in simulated time: laxity's rules against Optuna's timeout.

Both have the same slots, sampler, pruner and trainings. A third of the trials, drawn by seed, takes
twice as long, which nobody knows before. `python -m tests.support.sweep_race SEEDS` prints a table.
"""

import heapq
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import optuna
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

from laxity.sweeps.trial_plan import SweepState, TrialTime, count_starts
from laxity.worker.chain_link import EPOCH_MARGIN, LEAVING_S

EPOCHS = 16
EPOCH_S = 60.0
SLOTS = 4
DEADLINE_S = 3600.0
MOST = 1000
PIXELS, LABELS = load_digits(return_X_y=True)


def learn(trial: Any) -> Iterator[float]:
    """The accuracy on held-out images after each epoch of one trial."""
    net = SGDClassifier(
        alpha=trial.suggest_float("alpha", 1e-6, 1.0, log=True),
        learning_rate="constant",
        eta0=trial.suggest_float("rate", 1e-4, 1.0, log=True),
        random_state=trial.number,
    )
    for _ in range(EPOCHS):
        net.partial_fit(PIXELS[:1200] / 16, LABELS[:1200], classes=np.arange(10))
        yield float(net.score(PIXELS[1200:] / 16, LABELS[1200:]))


@dataclass
class Outcome:
    """Best accuracy of trials at full length by the deadline, and what became of the others."""

    best: float = 0.0
    whole: int = 0
    tried: int = 0
    cut_off: int = 0


@dataclass
class Race:
    """One sweep. `may_start(race)`: how many trials start now; `may_go_on(race, epoch_s)`: another epoch."""

    seed: int
    may_start: Callable[["Race"], int]
    may_go_on: Callable[["Race", float], bool]
    now: float = 0.0
    running: dict[int, float] = field(default_factory=dict)  # start by number
    shares: list[float] = field(default_factory=list)
    epochs_s: list[float] = field(default_factory=list)
    outcome: Outcome = field(default_factory=Outcome)

    def run(self) -> Outcome:
        sampler = optuna.samplers.TPESampler(seed=self.seed)
        pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=2)
        study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)
        slow = np.random.default_rng(self.seed).random(MOST) < 1 / 3
        ends: list[tuple[float, int, int, Any, Iterator[float]]] = []
        while True:
            for _ in range(self.may_start(self)):
                trial = study.ask()
                self.running[trial.number] = self.now
                epoch_s = EPOCH_S * (2 if slow[trial.number] else 1)
                heapq.heappush(ends, (self.now + epoch_s, trial.number, 1, trial, learn(trial)))
            if not ends or ends[0][0] > DEADLINE_S:
                self.outcome.cut_off = len(ends)
                return self.outcome
            self.now, number, epoch, trial, curve = heapq.heappop(ends)
            epoch_s = EPOCH_S * (2 if slow[number] else 1)
            self.epochs_s.append(epoch_s)
            value = next(curve)
            trial.report(value, epoch)
            if epoch == EPOCHS:
                study.tell(trial, value)
                self._end(number, 1.0)
                self.outcome.whole += 1
                self.outcome.best = max(self.outcome.best, value)
            elif trial.should_prune() or not self.may_go_on(self, epoch_s):
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                self._end(number, epoch / EPOCHS)
            else:
                heapq.heappush(ends, (self.now + epoch_s, number, epoch + 1, trial, curve))

    def _end(self, number: int, share: float) -> None:
        del self.running[number]
        self.shares.append(share)
        self.outcome.tried += 1


def state_of(race: Race) -> SweepState:
    """The snapshot that laxity's client would have, with times as predicted from epochs so far."""
    whole = None
    if race.epochs_s:
        p50_s, p90_s = (EPOCHS * float(np.quantile(race.epochs_s, q)) for q in (0.5, 0.9))
        whole = TrialTime(p50_s, p90_s)
    running = tuple(race.now - began for began in race.running.values())
    return SweepState(race.now, DEADLINE_S, MOST, SLOTS, whole, tuple(race.shares), running)


def race_with_promise(seed: int) -> Outcome:
    """Laxity's rules."""

    def is_in_time(race: Race, epoch_s: float) -> bool:
        return race.now + EPOCH_MARGIN * epoch_s + LEAVING_S <= DEADLINE_S

    return Race(seed, lambda race: count_starts(state_of(race)), is_in_time).run()


def race_with_timeout(seed: int) -> Outcome:
    """Optuna's: trials start until the time is over, and what runs then is of no use."""
    return Race(seed, lambda race: SLOTS - len(race.running), lambda *_: True).run()


def main(seeds: int) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    write = sys.stdout.write
    write("| seed | best: laxity, timeout | whole | tried | cut off |\n|---|---|---|---|---|\n")
    for seed in range(seeds):
        ours, theirs = race_with_promise(seed), race_with_timeout(seed)
        write(
            f"| {seed} | {ours.best:.4f}, {theirs.best:.4f} | {ours.whole}, {theirs.whole} "
            f"| {ours.tried}, {theirs.tried} | {ours.cut_off}, {theirs.cut_off} |\n"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]))
