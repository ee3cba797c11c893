"""What a model's runs were called with, and how far a value that none of them had can be trusted.

A parameter that took several values without effect on the time (a seed, a path) says nothing of a
new value. One that never varied says nothing either way, and one with effect says that it matters:
a value that was never seen then widens the interval as an unseen member of a family does, and for
a larger count so far that P90 holds if the time grows with it.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from laxity.parsing import finite_number
from laxity_profiler.model.calibration import NORMAL_90

if TYPE_CHECKING:
    from laxity_profiler.estimate import Workload

SIZES: Final = ("samples", "batch_size", "parameters")  # fields of a workload
ONE_RELATIVE: Final = 0.7  # relative error of what is known of one other model, or of other values
ALIKE: Final = 0.01  # relative difference of two ratios that are one
MOST_TIMES: Final = 10.0  # as long: what P90 allows for at most
VALUES_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class InputFit:
    """One parameter over a model's runs: `values` as JSON texts, the latest last, of so many runs.

    Where it always was `ratio` times a size of the workload, that is what it `follows`.
    """

    name: str
    values: tuple[str, ...]
    runs: int
    has_effect: bool = False
    follows: str = ""
    ratio: float = 0.0

    @property
    def numbers(self) -> list[float]:
        return [number for value in self.values if (number := number_of(value)) is not None]

    def has_seen(self, value: str) -> bool:
        """Whether runs tell what this value does to the time."""
        if value in self.values or (len(self.values) > 1 and not self.has_effect):
            return True
        number, seen = number_of(value), self.numbers
        return number is not None and bool(seen) and min(seen) <= number <= max(seen)

    def explains(self, value: str, size: int | None) -> bool:
        """Whether the time is scaled by a size that this parameter stands for."""
        number = number_of(value)
        if not self.follows or not size or number is None:
            return False
        return abs(number / size / self.ratio - 1.0) <= ALIKE

    def error_at(self, value: str) -> float:
        """The relative error of a time that was learned with other values."""
        number, counts = number_of(value), [seen for seen in self.numbers if seen >= 1.0]
        if number is None or not number.is_integer() or not counts or number <= max(counts):
            return ONE_RELATIVE
        times = min(MOST_TIMES, number / max(counts))
        return max(ONE_RELATIVE, (times - 1.0 / times) / 2.0 / NORMAL_90)

    def text(self, value: str) -> str:
        """Say `n=10000; all 3 runs had n=1000`."""
        named = " or ".join(self.values[-VALUES_NAMED:])
        return f"{self.name}={value}; {_count_runs(self.runs)} had {self.name}={named}"


def length_text(lengths: Sequence[int], epochs: int) -> str:
    """Say `epochs=40; all 3 runs had 10`, of the epochs that runs declared; "" if one had as many."""
    if not lengths or epochs in lengths:
        return ""
    latest = list(dict.fromkeys(reversed(lengths)))[:VALUES_NAMED]
    return (
        f"epochs={epochs}; {_count_runs(len(lengths))} had {' or '.join(map(str, sorted(latest)))}"
    )


def _count_runs(runs: int) -> str:
    return {1: "the one run", 2: "both runs"}.get(runs, f"all {runs} runs")


def number_of(value: str) -> float | None:
    """The number that a JSON text is; None for texts and truth values."""
    return finite_number(json.loads(value))


def unseen_inputs(fits: Sequence[InputFit], workload: "Workload") -> Iterator[tuple[InputFit, str]]:
    """The parameters whose value here tells that the runs may say little, with that value."""
    given = dict(workload.inputs)
    for fit in fits:
        value = given.get(fit.name)
        if value is None or fit.has_seen(value):
            continue
        size = getattr(workload, fit.follows) if fit.follows else None
        if not fit.explains(value, size):
            yield fit, value
