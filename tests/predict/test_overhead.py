"""What stops and starts cost by width, from noisy events with a heavy tail."""

import json
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import pytest

from laxity_profiler.estimate import Estimate, Workload
from laxity_profiler.history.observations import ObservedStop
from laxity_profiler.overhead.costs import CLUSTER, StopCosts, fit_costs
from laxity_profiler.predictor.history_predictor import HistoryPredictor
from laxity_profiler.registry.overhead_entry import (
    cross_validate,
    cross_validation_errors,
    overhead_entry,
)

SEEDS = range(40)


@dataclass(frozen=True)
class Machine:
    """Resumes of a + b w seconds, each 20 % off, one in ten of them three to eight times as long."""

    alone_s: float = 4.0
    per_worker_s: float = 1.0
    spread: float = 0.2
    tail: float = 0.1

    def draw(
        self, seed: int, n: int, widths: Sequence[int], model: str = "mlp"
    ) -> list[ObservedStop]:
        drawn = random.Random(f"{seed} {model}")
        return [self._one(drawn, model, drawn.choice(widths)) for _ in range(n)]

    def mean_s(self, width: int) -> float:
        usual_s = (self.alone_s + self.per_worker_s * width) * math.exp(self.spread**2 / 2)
        return usual_s * (1.0 + self.tail * 4.5)

    def _one(self, drawn: random.Random, model: str, width: int) -> ObservedStop:
        usual_s = self.alone_s + self.per_worker_s * width
        seconds = usual_s * math.exp(drawn.gauss(0.0, self.spread))
        if drawn.random() < self.tail:
            seconds *= drawn.uniform(3.0, 8.0)
        return ObservedStop(model, "resume", width, seconds, None)


CALM = Machine(tail=0.0)
TAILED = Machine()


def error_of_mean(machine: Machine, n: int, *, quantile: str = "mean_s", width: int = 2) -> float:
    """Over many draws: how far what is said of one width is from the mean of all such resumes."""
    truth = machine.mean_s(width)
    said = [resume(machine.draw(seed, n, (1, 2, 4)), "mlp", width) for seed in SEEDS]
    return fmean(abs(getattr(one, quantile) / truth - 1.0) for one in said)


def resume(seen: Iterable[ObservedStop], model: str, width: int) -> Estimate:
    return fit_costs(seen).estimate(model, ("resume",), width)


def test_a_wide_start_costs_more_where_it_did() -> None:
    seen = CALM.draw(1, 60, (1, 2, 4, 8))

    said = [resume(seen, "mlp", width).p50_s for width in (1, 2, 4, 8)]

    assert said == pytest.approx([5.0, 6.0, 8.0, 12.0], rel=0.12)


def test_the_predictor_asks_the_costs_of_its_width() -> None:
    predictor = HistoryPredictor(costs=fit_costs(CALM.draw(1, 60, (1, 8))))

    narrow, wide = (predictor.resume_cost(Workload("mlp", 9), width).p50_s for width in (1, 8))

    assert wide > 1.8 * narrow


def test_a_calm_mean_is_within_a_tenth_after_six_events_and_within_a_sixteenth_after_24() -> None:
    assert error_of_mean(CALM, 6) < 0.11
    assert error_of_mean(CALM, 24) < 0.0625


def test_with_a_heavy_tail_the_mean_is_nearer_to_the_mean_than_the_median_is() -> None:
    by_mean = [error_of_mean(TAILED, n) for n in (12, 24, 60)]
    by_median = [error_of_mean(TAILED, n, quantile="p50_s") for n in (12, 24, 60)]

    assert all(mean < 0.95 * middle for mean, middle in zip(by_mean, by_median, strict=True))
    assert by_mean[2] < 0.15
    assert by_median[2] > 0.25


def test_one_absurd_event_does_not_move_the_mean() -> None:
    seen = CALM.draw(3, 24, (1, 2))
    before = resume(seen, "mlp", 1)

    after = resume([*seen, ObservedStop("mlp", "resume", 1, 4_000.0, None)], "mlp", 1)

    assert after.p50_s == pytest.approx(before.p50_s, rel=0.05)
    assert after.mean_s == pytest.approx(before.mean_s, rel=0.1)


@pytest.mark.parametrize("machine", [CALM, TAILED], ids=["calm", "heavy tail"])
def test_nine_of_ten_events_are_within_their_p90(machine: Machine) -> None:
    kept = []
    for seed in SEEDS:
        said = fit_costs(machine.draw(seed, 24, (1, 2, 4)))
        p90_s = {w: said.estimate("mlp", ("resume",), w).p90_s for w in (1, 2, 4)}
        later = machine.draw(seed + 1_000, 25, (1, 2, 4))
        kept += [stop.seconds <= p90_s[stop.workers] for stop in later]

    assert 0.87 <= fmean(kept) <= 0.95


def test_one_width_says_nothing_of_others_but_a_wider_interval() -> None:
    seen = CALM.draw(5, 12, (2,))

    near, far = resume(seen, "mlp", 2), resume(seen, "mlp", 64)

    assert far.p50_s == pytest.approx(near.p50_s)
    assert far.p90_s / far.p50_s > 1.4 * near.p90_s / near.p50_s


def test_noise_at_two_widths_does_not_make_sixty_four_absurd() -> None:
    """The true cost is the same at all widths; two events of each of two widths are seen."""
    flat = Machine(alone_s=5.0, per_worker_s=0.0, tail=0.0)
    said = [resume(flat.draw(seed, 4, (1, 2)), "mlp", 64).p50_s for seed in SEEDS]

    assert max(said) < 4 * 5.0
    assert fmean(said) < 1.5 * 5.0


def test_a_model_seen_at_one_width_learns_the_slope_from_others() -> None:
    steep = Machine(alone_s=1.0, per_worker_s=2.0, tail=0.0)
    others = [stop for name in "abcd" for stop in steep.draw(1, 30, (1, 4), model=name)]

    said = [resume([*others, *steep.draw(2, 8, (1,))], "mlp", width).p50_s for width in (1, 4)]

    assert said[1] > 2.0 * said[0]


def test_an_unseen_model_costs_what_its_family_does() -> None:
    small, large = Machine(1.0, 0.1, tail=0.0), Machine(30.0, 3.0, tail=0.0)
    seen = [
        *small.draw(1, 20, (1, 2), model="mlp-a"),
        *small.draw(2, 20, (1, 2), model="mlp-b"),
        *(stop for name in ("cnn", "gru", "bert") for stop in large.draw(3, 20, (1, 2), model=name)),
    ]  # fmt: skip

    kin, stranger = resume(seen, "mlp-c", 1), resume(seen, "xlnet", 1)

    assert kin.p50_s < 4.0
    assert stranger.p50_s > 16.0
    assert (kin.source, stranger.source) == ("family", "prior")


def test_costs_are_the_same_after_json_and_old_ones_are_read() -> None:
    costs = fit_costs(TAILED.draw(1, 20, (1, 2)), prior=CLUSTER)
    old = {
        "models": [{"model": "mlp", "parts": [{"part": "resume", "seconds": 9.0, "error": 0.2, "n": 7}]}],
        "pooled": [{"part": "resume", "seconds": 30.0, "error": 0.35, "n": 0}],
    }  # fmt: skip

    again = StopCosts.from_json(json.loads(json.dumps(costs.to_json())))
    said = StopCosts.from_json(old).estimate("mlp", ("resume",), 1)

    assert again == costs
    assert (said.p50_s, said.source) == (9.0, "history")


def test_held_back_events_are_predicted_at_their_own_width() -> None:
    steep = Machine(alone_s=1.0, per_worker_s=3.0, tail=0.0)
    seen = steep.draw(1, 60, (1, 8))

    found = cross_validation_errors(cross_validate(seen, prior=CLUSTER))

    assert found["error/resume_mean_ape"] < 0.25
    assert found["error/resume_of_mean"] < 0.05


def test_the_registered_costs_say_how_far_the_sum_of_events_was_off() -> None:
    seen = TAILED.draw(1, 60, (1, 2, 4))

    entry = overhead_entry(fit_costs(seen), seen)

    assert entry.metrics["error/resume_of_mean"] < 0.2
    assert "from their predicted sum" in entry.description
