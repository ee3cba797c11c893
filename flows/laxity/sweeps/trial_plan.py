"""How many trials of a sweep can be tried by its deadline, and whether another one starts now. Pure.

A trial starts only where it would reach full length by the deadline at P50, the first one at P90: one
that cannot could not become the best either. One that turns out slower ends at an epoch's end before
the deadline. What a pruned trial leaves free goes to the next one. Only when none can start any more do
running ones grow, as far as their widths allow: N workers on one trial do less work than N trials on one
worker each.

Trials of the future last as those before: a time at full length is lognormal through P50 and P90; the
share of it that a trial trains is drawn from the ended ones, with one more that reached full length.
So nothing is hoped of a pruner that has ended nothing yet.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from laxity.human_time import count_noun, format_seconds, wall_time

Floats = NDArray[np.float64]
DRAWS: Final = 200
NORMAL_90: Final = 1.2816  # quantile of the normal distribution
MOST_SLOTS: Final = 4096


@dataclass(frozen=True, slots=True)
class TrialTime:
    """Seconds that a trial takes at full length, with its start."""

    p50_s: float
    p90_s: float


@dataclass(frozen=True, slots=True)
class SweepState:
    """A sweep at the instant `now`: of `trials` that are wanted, the rest has not begun.

    `shares` of their length that ended trials have trained; `running_s` that each running one has
    trained; `slots` is how many run at once, on `gpus_each`; `whole` is None before anything is known.
    """

    now: float
    deadline_at: float
    trials: int
    slots: int
    whole: TrialTime | None = None
    shares: tuple[float, ...] = ()
    running_s: tuple[float, ...] = ()
    gpus_each: int = 1

    @property
    def left(self) -> int:
        return max(0, self.trials - len(self.shares) - len(self.running_s))

    @property
    def room(self) -> int:
        """Trials that could start now, for all that is known of the slots."""
        return max(0, min(self.left, self.slots - len(self.running_s)))

    @property
    def is_too_late(self) -> bool:
        """Whether a trial that starts now would not reach full length in time."""
        if self.whole is None:
            return False
        needs_s = self.whole.p50_s if self.shares or self.running_s else self.whole.p90_s
        return self.now + needs_s > self.deadline_at


@dataclass(frozen=True, slots=True)
class SweepForecast:
    """Trials that have ended by the deadline: `least` in nine of ten cases, `most` in one of ten.

    `all_at`: when all would have, at P90; `more_slots` that would do for all in time, None: no number.
    """

    least: int
    most: int
    all_at: float
    more_slots: int | None


def count_starts(state: SweepState) -> int:
    """How many trials start now."""
    return 0 if state.is_too_late else state.room


def forecast(state: SweepState) -> SweepForecast | None:
    """What the sweep comes to; None before anything is known of a trial's time."""
    if state.whole is None:
        return None
    if state.is_too_late and not state.shares and not state.running_s:
        return SweepForecast(0, 0, math.inf, None)
    ended = _count_ended(state, state.slots)
    least, most = (int(count) for count in np.quantile(ended, (0.1, 0.9), method="lower"))
    finish_s = _finish_times(state, state.slots, until=math.inf)[0]
    all_at = state.now + float(np.quantile(finish_s, 0.9))
    return SweepForecast(least, most, all_at, _more_slots(state, least))


def promise_text(state: SweepState) -> str:
    """The verdict on the sweep, for people."""
    outlook, due = forecast(state), wall_time(state.deadline_at, state.now)
    if outlook is None or state.whole is None:
        return (
            "forecast: nothing is known of these trials yet; the first ones tell how many there can "
            f"be by {due}"
        )
    if not outlook.most:
        takes = format_seconds(state.whole.p90_s)
        needs = wall_time(state.now + state.whole.p90_s, state.now)
        return f"refused: one trial takes {takes} at P90, until {needs}; the deadline is {due}"
    by = f"by {due} at P90{_condition(state)}"
    if outlook.least == state.trials:
        return f"promised: all {state.trials} trials {by}"
    span = f"{outlook.least} to {outlook.most}" if outlook.most > outlook.least else outlook.least
    more_gpus = count_noun((outlook.more_slots or 0) * state.gpus_each, "more GPU")
    more = f", or {more_gpus}" if outlook.more_slots else ""
    needs = f"all {state.trials} need until {wall_time(outlook.all_at, state.now)}{more}"
    return f"promised: {span} of {state.trials} trials {by}; {needs}"


def _condition(state: SweepState) -> str:
    """On what the number of trials rests: nothing is kept for those that have not begun."""
    if not state.left:
        return ""
    used = min(state.slots, len(state.running_s) + state.left)
    return f", if other jobs leave it {count_noun(used * state.gpus_each, 'GPU')}"


def _more_slots(state: SweepState, least: int) -> int | None:
    """The fewest more slots with which all trials end in time at P90; None if no number does."""
    if least >= state.trials:
        return 0
    low, high = state.slots, min(MOST_SLOTS, len(state.running_s) + state.left)
    if high <= low or not _fits_all(state, high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _fits_all(state, middle) else (middle, high)
    return high - state.slots


def _fits_all(state: SweepState, slots: int) -> bool:
    return float(np.quantile(_count_ended(state, slots), 0.1)) >= state.trials


def _count_ended(state: SweepState, slots: int) -> Floats:
    """Trials that have ended by the deadline in each draw, those that have ended by now included."""
    return _finish_times(state, slots, until=state.deadline_at - state.now)[1] + len(state.shares)


def _finish_times(state: SweepState, slots: int, *, until: float) -> tuple[Floats, Floats]:
    """In each draw: seconds until the last trial has ended, and how many there were.

    The next trial goes to the slot that is free first, unless it would be too late there by then.
    """
    assert state.whole is not None  # noqa: S101 - asked before
    rng = np.random.default_rng(0)
    running = len(state.running_s)
    whole_s = _draw_whole(rng, state.whole, running + state.left)
    took_s = whole_s * _draw_shares(rng, state.shares, running + state.left)
    free_s = np.zeros((DRAWS, max(slots, running, 1)))
    free_s[:, :running] = np.maximum(took_s[:, :running] - np.array(state.running_s), 0.0)
    count, rows = np.full(DRAWS, float(running)), np.arange(DRAWS)
    for trial in range(running, running + state.left):
        slot = free_s.argmin(axis=1)
        starts = free_s[rows, slot] + state.whole.p50_s <= until
        if not starts.any():
            break
        free_s[rows, slot] += np.where(starts, took_s[:, trial], 0.0)
        count += starts
    return free_s.max(axis=1), count


def _draw_whole(rng: np.random.Generator, whole: TrialTime, trials: int) -> Floats:
    """Seconds at full length, (draws, trials)."""
    spread = math.log(max(whole.p90_s / max(whole.p50_s, 1e-6), 1.0)) / NORMAL_90
    drawn: Floats = whole.p50_s * np.exp(spread * rng.standard_normal((DRAWS, trials)))
    return drawn


def _draw_shares(rng: np.random.Generator, shares: Sequence[float], trials: int) -> Floats:
    drawn: Floats = rng.choice(np.array([*shares, 1.0]), size=(DRAWS, trials))
    return drawn
