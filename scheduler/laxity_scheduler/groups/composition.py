"""How long a group takes, from how long its steps take; and what share of the time each step has.

A step's job takes a lognormal time with the P50 and P90 that were predicted of it; a step of n jobs side
by side takes the longest of n, drawn as U^(1/n). Finishes of the whole are drawn by simulation of the
graph with a fixed seed: the same parts give the same bytes, and a P90 is that of the whole, never a sum
of P90s. With 4,000 draws a P90 is that of 89 to 91 %.

Shares, with D until the deadline, d the mean time of each step, e the longest way to a step's end and L
the longest way from there: a step must end by D e / (e + L), so slack is divided by predicted time. One
that ends later than that at P90 may take slack of what comes after it, up to D - L.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats

SAMPLES: Final = 4000
Z90: Final = 1.2815515655446004  # the P90 of a standard normal distribution
LEAST_S: Final = 1e-6
MOST_ROUNDS: Final = 64  # of one step that are drawn each on its own


@dataclass(frozen=True, slots=True)
class StepPart:
    """What is left of one step, in seconds. Parts come behind those that they are `after`.

    `count` jobs are to come, of which `at_once` run side by side; each takes `p50_s`, and at P90 `p90_s`.
    Of those that run, `running` says the same for what is left of each. `wait_s` is spent after all steps before it have ended, until its jobs start.
    """

    name: str
    p50_s: float
    p90_s: float
    after: tuple[str, ...] = ()
    count: int = 1
    at_once: int = 1
    wait_s: float = 0.0
    running: tuple[tuple[float, float], ...] = ()


@dataclass(slots=True)
class GroupCourse:
    """How a group goes, in seconds from now: draws of each step's time and end."""

    parts: list[StepPart] = field(default_factory=list)
    takes_s: dict[str, Floats] = field(default_factory=dict)
    ends_s: dict[str, Floats] = field(default_factory=dict)

    def ready_s(self, after: Sequence[str]) -> Floats:
        """Draws of when the last of these steps ends; now without any."""
        before = [self.ends_s[name] for name in after if name in self.ends_s]
        return np.max(before, axis=0) if before else np.zeros(SAMPLES)

    def add(self, part: StepPart) -> None:
        """A further step, behind all that it comes after."""
        takes_s = part.wait_s + _draw_step(part)
        self.parts.append(part)
        self.takes_s[part.name] = takes_s
        self.ends_s[part.name] = self.ready_s(part.after) + takes_s

    def quantile_s(self, share: float) -> float:
        """When the whole has ended with this probability."""
        return quantile_of(self.ready_s(list(self.ends_s)), share)

    @property
    def mean_takes_s(self) -> dict[str, float]:
        return {name: float(draws.mean()) for name, draws in self.takes_s.items()}


@dataclass(frozen=True, slots=True)
class StepShare:
    """A step must end by `due_s`, in seconds from now; `takes_s` is its mean time.

    By `latest_s` it must end if all that comes after it takes its mean time and no slack.
    """

    due_s: float
    latest_s: float
    takes_s: float
    is_critical: bool


def quantile_of(draws: Floats, share: float) -> float:
    """The draw that this share of all does not exceed."""
    place = round(share * (SAMPLES - 1))
    return float(np.partition(draws, place)[place])


def compose(parts: Sequence[StepPart]) -> GroupCourse:
    """Draw how the group goes."""
    course = GroupCourse()
    for part in parts:
        course.add(part)
    return course


def _draw_step(part: StepPart) -> Floats:
    """In rounds of as many jobs as run side by side, each round as long as its longest job.

    The sum of very many rounds is normal, so only some are drawn.
    """
    total = np.zeros(SAMPLES)
    at_once = max(1, min(part.at_once, part.count))
    rounds, rest = divmod(part.count, at_once)
    drawn = [at_once] * min(rounds, MOST_ROUNDS) + [rest] * bool(rest)
    for number, jobs in enumerate(drawn):
        total += _draw_times(part.p50_s, part.p90_s, _longest_normal(part.name, number, jobs))
    if rounds > MOST_ROUNDS:
        one = _draw_times(part.p50_s, part.p90_s, _longest_normal(part.name, 0, at_once))
        more, normal = rounds - MOST_ROUNDS, _longest_normal(part.name, MOST_ROUNDS + 1, 1)
        total += np.maximum(0.0, more * one.mean() + np.sqrt(more) * one.std() * normal)
    for number, (p50_s, p90_s) in enumerate(part.running):
        alone = _longest_normal(part.name, -1 - number, 1)
        total = np.maximum(total, _draw_times(p50_s, p90_s, alone))
    return total


def _draw_times(p50_s: float, p90_s: float, normal: Floats) -> Floats:
    median_s = max(p50_s, LEAST_S)
    times: Floats = median_s * np.exp(np.log(max(p90_s, median_s) / median_s) / Z90 * normal)
    return times


@lru_cache(maxsize=512)
def _longest_normal(name: str, number: int, jobs: int) -> Floats:
    """Draws of the greatest of so many standard normal numbers; the same ones for the same step."""
    rng = np.random.default_rng(zlib.crc32(f"{name}/{number}".encode()))
    levels = np.clip(rng.random(SAMPLES) ** (1.0 / jobs), 1e-12, 1.0 - 1e-12)
    draws = np.fromiter(map(NormalDist().inv_cdf, levels.tolist()), float, SAMPLES)
    draws.flags.writeable = False
    return draws


def divide_time(course: GroupCourse, left_s: float) -> dict[str, StepShare]:
    """The share of each step of the time that is left until the deadline."""
    takes = course.mean_takes_s
    to_end, to_go = _longest_ways(course.parts, takes)
    longest = max((to_end[name] + to_go[name] for name in takes), default=0.0)
    shares = {}
    for name, way in to_end.items():
        through = way + to_go[name]
        even_s = left_s * way / through if through > 0.0 else left_s
        p90_s = quantile_of(course.ends_s[name], 0.9)
        latest_s = left_s - to_go[name]
        due_s = max(even_s, min(p90_s, latest_s))
        shares[name] = StepShare(due_s, latest_s, takes[name], through >= longest * (1.0 - 1e-9))
    return shares


def _longest_ways(
    parts: Sequence[StepPart], takes: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, float]]:
    """The longest way to the end of each step, and from there to the end of the group."""
    to_end: dict[str, float] = {}
    to_go = dict.fromkeys(takes, 0.0)
    for part in parts:
        ready = max((to_end[name] for name in part.after if name in to_end), default=0.0)
        to_end[part.name] = ready + takes[part.name]
    for part in reversed(parts):
        for name in part.after:
            if name in to_go:
                to_go[name] = max(to_go[name], takes[part.name] + to_go[part.name])
    return to_end, to_go


def guilty_step(course: GroupCourse) -> str:
    """The step without whose time the whole would end soonest at P90."""

    def without(name: str) -> float:
        parts = [
            replace(p, count=0, wait_s=0.0, running=()) if p.name == name else p
            for p in course.parts
        ]
        return compose(parts).quantile_s(0.9)

    return min((part.name for part in course.parts), key=lambda name: (without(name), name))
