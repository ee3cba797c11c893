"""The verdict on a job: a promise, a refusal with checked counter-offers, or a forecast."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from laxity_scheduler.model.reasons import Reason

OfferKind = Literal["deadline", "widths", "borrow", "lent", "probe", "soft"]
Runs = tuple[tuple[float, int], ...]  # reserved widths over time: (until_at, workers), in order


@dataclass(frozen=True, slots=True)
class Promise:
    """The deadline will be kept with 90 % confidence. `runs` are the reserved widths over time."""

    deadline_at: float
    p50_at: float
    p90_at: float
    runs: Runs
    reason: Reason
    rests_on: tuple[str, ...] = ()  # sources of the predictions, and the jobs promised before it
    gpu_type: str = ""  # the product on which it is kept


class PendingPromise(NamedTuple):
    """A promise of the decision in the making: said in full once it is known how it is kept."""

    deadline_at: float
    rests_on: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """What would be promised instead; checked on the snapshot of `checked_at`, not held.

    `kind` says which one thing differs from what was asked: a later deadline, other widths,
    capacity that would have to be added, class soft on GPUs that inference has lent, a probe of two
    epochs, or class soft. On lent GPUs nothing is promised: `p50_at` is the best guess.
    """

    kind: OfferKind
    deadline_at: float
    widths: tuple[int, ...]
    p90_at: float
    checked_at: float
    gpus_borrowed: int = 0
    p50_at: float = float("inf")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Nothing is promised: the job holds nothing. `offers` are in the order of least change."""

    reason: Reason
    offers: tuple[Offer, ...] = ()
    p90_at: float = float("inf")


@dataclass(frozen=True, slots=True)
class Forecast:
    """For soft and best-effort jobs: when it is expected to end; `late_by_s` is 0 if in time."""

    p50_at: float
    p90_at: float
    late_by_s: float
    reason: Reason


Verdict = Promise | Refusal | Forecast
