"""Epoch times from bytes over time: believed while they come from storage, and only then."""

import numpy as np
import pytest
from numpy.typing import NDArray

from laxity_profiler.model.traffic import (
    NotBelieved,
    TrafficFit,
    epoch_from_rates,
    reading_rates,
)

RATE = 50e6


def reading(
    epoch_s: float, seconds: int, *, seed: int = 1, pause_s: float = 4.0, cached_after: int = 0
) -> NDArray[np.float64]:
    """Rates of epochs that read, then evaluate for `pause_s`; noisy; cached after so many epochs."""
    noise = np.random.default_rng(seed).normal(1.0, 0.15, seconds)
    at = np.arange(seconds)
    rate = np.where(at % epoch_s < epoch_s - pause_s, RATE, 0.0) * np.clip(noise, 0.1, 2.0)
    if cached_after:
        rate[int(cached_after * epoch_s) :] = 0.0
    return np.asarray(rate)


def dataset(epoch_s: float, pause_s: float = 4.0) -> int:
    return int(RATE * (epoch_s - pause_s))


@pytest.mark.parametrize("epoch_s", [20.0, 47.0, 120.5])
def test_a_known_size_gives_the_epoch_time_after_two_epochs(epoch_s: float) -> None:
    found = epoch_from_rates(reading(epoch_s, int(2.2 * epoch_s)), dataset(epoch_s))

    assert isinstance(found, TrafficFit)
    assert found.how == "dataset"
    assert found.epoch_s == pytest.approx(epoch_s, rel=0.10)


def test_a_part_of_the_first_epoch_already_says_something() -> None:
    found = epoch_from_rates(reading(200.0, 60, pause_s=0.0), dataset(200.0, 0.0))

    assert isinstance(found, TrafficFit)
    assert found.epoch_s == pytest.approx(200.0, rel=0.10)
    assert found.n_epochs == pytest.approx(0.3, rel=0.1)


@pytest.mark.parametrize("epoch_s", [20.0, 33.4, 61.0, 120.5])
@pytest.mark.parametrize("seed", range(3))
def test_without_a_size_the_period_is_the_epoch_time(epoch_s: float, seed: int) -> None:
    found = epoch_from_rates(reading(epoch_s, int(3.5 * epoch_s), seed=seed))

    assert isinstance(found, TrafficFit)
    assert found.how == "period"
    assert found.epoch_s == pytest.approx(epoch_s, rel=0.05)


@pytest.mark.parametrize("size", [dataset(40.0), None], ids=["size known", "size unknown"])
def test_a_cached_data_set_is_not_believed(size: int | None) -> None:
    cached = reading(40.0, 160, cached_after=1)

    assert epoch_from_rates(cached, size) == NotBelieved("cached")


def test_steady_reading_has_no_period() -> None:
    noise = np.random.default_rng(3).normal(RATE, 0.1 * RATE, 300)

    assert epoch_from_rates(noise) == NotBelieved("no period")


def test_too_little_is_too_little() -> None:
    assert epoch_from_rates(np.zeros(50), 1_000) == NotBelieved("nothing read")
    assert epoch_from_rates(np.full(20, 1.0), 10_000) == NotBelieved("too little seen")


def test_rates_come_from_readings_at_any_instants() -> None:
    at = [0.0, 1.5, 2.0, 4.0]

    assert reading_rates(at, [0, 150, 200, 400]) == pytest.approx([100.0] * 4)


def test_a_counter_that_starts_anew_does_not_go_back() -> None:
    assert reading_rates([0.0, 1.0, 2.0, 3.0], [500, 600, 100, 200]) == pytest.approx([100.0] * 3)


@pytest.mark.parametrize("at", [[0.0], [1.0, 1.0], [2.0, 1.0]])
def test_readings_without_time_between_them_are_refused(at: list[float]) -> None:
    with pytest.raises(ValueError, match=r"needed|grow"):
        reading_rates(at, [0] * len(at))
