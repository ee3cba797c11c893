"""The load of an inference fleet over time, as shares of its GPUs, from requests per second.

A file has the columns `model,start_s,requests_per_s`, one row per model and slot. The models that
last as long as the longest one are summed. Requests become GPUs by two rules of our own: the least
and the largest rate are the trough and the peak of the fleet, and a power between them brings the
mean to where the paper has it (Aryl: 42, 65 and 95 % of the fleet). The trace repeats for ever.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from laxity.human_time import count_noun
from laxity_lab.traces.trace_fields import read_number, read_text
from laxity_lab.traces.traces import TraceError, csv_rows, read_rows
from laxity_profiler.estimate import Floats
from laxity_scheduler.model.job import DAY_S

TROUGH, MEAN, PEAK = 0.42, 0.65, 0.95
COLUMNS: Final = ("model", "start_s", "requests_per_s")
SHORTEST_SLOT_S, LONGEST_SLOT_S = 1.0, 86_400.0
MOST_REQUESTS_PER_S: Final = 1e12
HISTORY_S: Final = 8 * DAY_S  # of load that is known when a simulation begins


@dataclass(frozen=True, slots=True)
class InferenceLoad:
    """Shares of the fleet that are needed, one per slot of `slot_s` seconds, shape (n,)."""

    slot_s: float
    shares: Floats

    def share(self, slot: int) -> float:
        """The share of a slot; the first one of a simulation is 0."""
        return float(self.shares[slot % len(self.shares)])

    def past(self, slot: int) -> Floats:
        """The shares up to a slot, itself included: as far back as forecasts look."""
        slots = np.arange(slot - round(HISTORY_S / self.slot_s), slot + 1)
        return np.asarray(self.shares[slots % len(self.shares)])


def read_load(path: Path) -> InferenceLoad:
    """The load of a file. TraceError says what is wrong with it, and where."""
    rates = _rates_by_model(path)
    longest = max((len(slots) for slots in rates.values()), default=0)
    whole = [slots for slots in rates.values() if len(slots) == longest]
    if longest < 2:
        slots = count_noun(longest, "slot")
        raise TraceError(f"{path.name} has {slots}; an inference load needs at least 2")
    instants = sorted(whole[0])
    slot_s = _measure_slot(path, instants)
    summed = np.array([sum(slots.get(instant, 0.0) for slots in whole) for instant in instants])
    return InferenceLoad(slot_s, scale_to_shares(summed))


def _measure_slot(path: Path, instants: Sequence[float]) -> float:
    """How long a slot is, in seconds."""
    steps = np.diff(np.array(instants))
    slot_s = float(steps[0])
    other_s = float(steps[np.argmax(np.abs(steps - slot_s))])
    if not np.isclose(other_s, slot_s):
        lengths = f"{slot_s:g} s long at first and {other_s:g} s later"
        raise TraceError(f"{path.name}: slots are {lengths}")
    if not SHORTEST_SLOT_S <= slot_s <= LONGEST_SLOT_S:
        limits = f"{SHORTEST_SLOT_S:g} s to {LONGEST_SLOT_S:g} s"
        raise TraceError(f"{path.name}: slots are {slot_s:g} s long; {limits} can be simulated")
    return slot_s


def _rates_by_model(path: Path) -> dict[str, dict[float, float]]:
    rates: dict[str, dict[float, float]] = {}

    def add(row: Mapping[str, str]) -> None:
        model, start_s, rate = _read_row(row)
        if start_s in rates.setdefault(model, {}):
            raise ValueError(f"model {model} has start_s {start_s:g} twice")
        rates[model][start_s] = rate

    _, bad = read_rows(path, lambda lines: csv_rows(lines, COLUMNS, add))
    if bad:
        raise TraceError(f"{path.name}, {bad[0]}")
    return rates


def _read_row(row: Mapping[str, str]) -> tuple[str, float, float]:
    rate = read_number(row, "requests_per_s")
    if not 0.0 <= rate <= MOST_REQUESTS_PER_S:
        raise ValueError(f"requests_per_s is {rate:g}: a rate is 0 to {MOST_REQUESTS_PER_S:g}")
    return read_text(row, "model"), read_number(row, "start_s"), rate


def scale_to_shares(rates: Floats) -> Floats:
    """Rates as shares of a fleet with this trough, mean and peak; a flat load is at the mean."""
    spread = float(rates.max() - rates.min())
    if spread <= 0.0:
        return np.full(len(rates), MEAN)
    unit = (rates - rates.min()) / spread
    wanted, low, high = (MEAN - TROUGH) / (PEAK - TROUGH), 0.01, 100.0
    for _ in range(60):  # the mean of unit ** power falls as the power grows
        power = math.sqrt(low * high)
        low, high = (power, high) if (unit**power).mean() > wanted else (low, power)
    return np.asarray(TROUGH + (PEAK - TROUGH) * unit ** math.sqrt(low * high))
