"""Epoch time of a job never seen before, from the bytes it reads over time (PickyMan, stage A).

An epoch reads the data set once. So with D bytes in the data set and a reading rate r(t),

    T_epoch = D / mean(r)                      D known
    T_epoch = first peak of r's autocorrelation  D unknown, two epochs seen

Both are wrong as soon as the data come out of a cache: then nothing is said. A cache shows where
the kernel fetched fewer bytes than the training read of its files, where a rate falls in the middle
of an epoch, and where later epochs read less than the first. The form is our reading; the paper is
not public.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from laxity_profiler.estimate import Floats

LEAST_PERIOD_S: Final = 3
SMOOTH_S: Final = 3
PEAK: Final = 0.5  # of the autocorrelation, normalised: lower is noise
NEAR_HIGHEST: Final = 0.85  # the first peak so near the highest is the period, not a part of it
WARM_UP_S: Final = 5
LEAST_SEEN: Final = 0.05  # of the data set; less says nothing
CACHED: Final = 0.5  # of the first epoch's bytes; an epoch with less was not read from storage
FIRST_SHARE: Final = 0.8  # of the data set that the first epoch must have read
FALLEN: Final = 0.25  # of the former rate for a quarter of the time: the data are in memory by now
LEAST_ERROR: Final = 0.05
PERIOD_ERROR: Final = 0.10


@dataclass(frozen=True, slots=True)
class TrafficFit:
    """An epoch time in seconds with its relative error, and what it was read from."""

    epoch_s: float
    error: float
    how: Literal["dataset", "period"]
    n_epochs: float


@dataclass(frozen=True, slots=True)
class NotBelieved:
    """No estimate, and why."""

    why: Literal["cached", "read ahead", "too little seen", "no period", "nothing read"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What worker 0 of `width` has read since an epoch began: bytes at each of these seconds.

    Of `file_bytes` the kernel can tell which came from storage: `storage_bytes`, None if it does
    not. `by` is who counted.
    """

    width: int
    read_s: tuple[float, ...]
    read_bytes: tuple[int, ...]
    by: str = "training"
    file_bytes: int = 0
    storage_bytes: int | None = None


def epoch_from_reading(reading: Reading, dataset_bytes: int | None) -> TrafficFit | NotBelieved:
    """One epoch on as many workers as read now, each an equal part of the data."""
    is_known = reading.storage_bytes is not None and reading.by == "training"
    if is_known and (reading.storage_bytes or 0) < FIRST_SHARE * reading.file_bytes:
        return NotBelieved("cached")
    if len(reading.read_s) < 2:
        return NotBelieved("too little seen")
    fit = epoch_from_rates(
        reading_rates(reading.read_s, reading.read_bytes) * reading.width, dataset_bytes
    )
    if isinstance(fit, TrafficFit) and fit.how == "dataset" and fit.n_epochs > 1.0 - LEAST_ERROR:
        return NotBelieved("read ahead")  # all is read, and the epoch is not over
    return fit


def epoch_from_rates(rate: Floats, dataset_bytes: int | None = None) -> TrafficFit | NotBelieved:
    """What the rates, shape (seconds,) in bytes per second, say of one epoch."""
    began = np.flatnonzero(rate > 0)
    if not len(began):
        return NotBelieved("nothing read")
    rate = rate[began[0] :]
    if dataset_bytes:
        return _epoch_by_dataset(rate, dataset_bytes)
    return _epoch_by_period(rate)


def reading_rates(at: Sequence[float], read_bytes: Sequence[int]) -> Floats:
    """Bytes per second in whole seconds, from readings of a growing counter.

    A counter that falls was started anew (another process): the new reading counts as it is.
    """
    if len(at) != len(read_bytes) or len(at) < 2:
        raise ValueError(f"{len(at)} instants and {len(read_bytes)} readings; two are needed")
    steps = np.diff(np.asarray(read_bytes, dtype=np.float64))
    grown = np.where(steps < 0, np.asarray(read_bytes[1:], dtype=np.float64), steps)
    total = np.concatenate([[0.0], np.cumsum(grown)])
    instants = np.asarray(at, dtype=np.float64)
    if not np.all(np.diff(instants) > 0):
        raise ValueError("the instants of the readings do not grow")
    whole = np.arange(instants[0], instants[-1] + 1e-9, 1.0)
    return np.diff(np.interp(whole, instants, total))


def _epoch_by_dataset(rate: Floats, dataset_bytes: int) -> TrafficFit | NotBelieved:
    """The size is known: the mean rate over whole epochs, else over what was seen of the first."""
    total = np.cumsum(rate)
    if total[-1] < LEAST_SEEN * dataset_bytes or len(rate) <= WARM_UP_S:
        return NotBelieved("too little seen")
    if _has_fallen(rate):
        return NotBelieved("cached")
    warm = rate[WARM_UP_S:]
    done = int(total[-1] // dataset_bytes)
    if done >= 1:
        last = float(np.searchsorted(total, done * dataset_bytes)) + 1.0
        return TrafficFit(last / done, LEAST_ERROR, "dataset", total[-1] / dataset_bytes)
    epochs_seen = total[-1] / dataset_bytes
    noise = float(warm.std() / warm.mean()) / math.sqrt(len(warm))
    error = math.sqrt(LEAST_ERROR**2 + noise**2 + (0.1 * (1.0 - epochs_seen)) ** 2)
    return TrafficFit(dataset_bytes / float(warm.mean()), error, "dataset", float(epochs_seen))


def _epoch_by_period(rate: Floats) -> TrafficFit | NotBelieved:
    period = _find_period(rate)
    if period is None:
        return NotBelieved("cached" if _has_fallen(rate) else "no period")
    edges = np.arange(0, len(rate) - period + 1e-9, period)
    total = np.concatenate([[0.0], np.cumsum(rate)])
    seconds = np.arange(len(total), dtype=np.float64)
    per_epoch = np.interp(edges + period, seconds, total) - np.interp(edges, seconds, total)
    if per_epoch.min() < CACHED * per_epoch[0] or _has_fallen(rate):
        return NotBelieved("cached")
    return TrafficFit(period, PERIOD_ERROR, "period", len(rate) / period)


def _has_fallen(rate: Floats) -> bool:
    """Whether the last quarter reads far slower than the time before."""
    cut = 3 * len(rate) // 4
    if cut < 2:
        return False
    return bool(rate[cut:].mean() < FALLEN * rate[:cut].mean())


def _find_period(rate: Floats) -> float | None:
    """The lag of the first clear peak of the autocorrelation, sharpened by its multiples."""
    n = len(rate)
    if n < 2 * LEAST_PERIOD_S + SMOOTH_S + 2:
        return None
    likeness = _autocorrelation(np.convolve(rate, np.full(SMOOTH_S, 1.0 / SMOOTH_S), "valid"))
    n = len(likeness)
    half = likeness[: n // 2 + 1]
    inner = half[1:-1]
    is_peak = (inner >= half[:-2]) & (inner > half[2:]) & (inner >= PEAK)
    peaks = [int(lag) for lag in np.flatnonzero(is_peak) + 1 if lag >= LEAST_PERIOD_S]
    if not peaks:
        return None
    highest = max(half[lag] for lag in peaks)
    first = next(lag for lag in peaks if half[lag] >= NEAR_HIGHEST * highest)
    return _sharpen_period(likeness, first, peaks)


def _sharpen_period(likeness: Floats, first: int, peaks: Sequence[int]) -> float:
    """The furthest peak near a multiple of the first one, divided by that multiple."""
    period = _parabola_top(likeness, first)
    for lag in peaks:
        times = round(lag / period)
        if times > 1 and abs(lag - times * period) < 0.2 * period:
            period = _parabola_top(likeness, lag) / times
    return period


def _parabola_top(likeness: Floats, lag: int) -> float:
    """The top of the parabola through a peak and its neighbours."""
    left, middle, right = likeness[lag - 1 : lag + 2]
    bend = left - 2.0 * middle + right
    return lag + (0.5 * float((left - right) / bend) if bend < 0.0 else 0.0)


def _autocorrelation(rate: Floats) -> Floats:
    """Normalised to 1 at lag 0; each lag by the number of its pairs."""
    n = len(rate)
    off = rate - rate.mean()
    spectrum = np.fft.rfft(off, 2 * n)
    products = np.fft.irfft(spectrum * np.conj(spectrum), 2 * n)[:n]
    pairs = products / (n - np.arange(n))
    return np.asarray(pairs / pairs[0] if pairs[0] > 0 else np.zeros(n))
