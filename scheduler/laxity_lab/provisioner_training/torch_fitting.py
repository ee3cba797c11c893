"""Fit Mirage's two networks that predict hours, the transformer and the mixture of experts.

As in the paper's release but for three things, which are ours: inputs and hours are standardised
(there nothing is), whole weeks are held out (there the last part of the samples), and training ends
once these weeks no longer gain.
"""

from dataclasses import replace
from typing import Any, Final

import numpy as np

from laxity_lab.provisioner_training.samples import Samples
from laxity_lab.provisioner_training.torch_loop import (
    Advance,
    Recipe,
    fresh,
    on_device,
    predict,
    train,
)
from laxity_lab.provisioner_training.torch_modules import (
    PAPER,
    EncoderNetwork,
    MixtureNetwork,
    Size,
    encoder_of,
    gate_of,
)
from laxity_scheduler.chains.network_models import Experts, NetworkModel
from laxity_scheduler.chains.networks import scale_of

TRANSFORMER: Final = Recipe(passes=300, batch=128, rate=1e-4)
EXPERT: Final = Recipe(passes=1_000, batch=64, rate=1e-5)
MIXTURE: Final = Recipe(passes=300, batch=128, rate=1e-5)


class Lesson:
    """Samples on the device: what is trained on and what is held out, as standard scores."""

    def __init__(self, training: Samples, held: Samples) -> None:
        self.scaling = scale_of(training.windows)
        self.mean = float(training.difference_h.mean())
        self.deviation = float(training.difference_h.std()) or 1.0
        self.tokens, self.scores = self._on_device(training)
        self.held_tokens, self.held_scores = self._on_device(held)

    def __len__(self) -> int:
        return len(self.scores)

    def _on_device(self, samples: Samples) -> Any:
        scores = (samples.difference_h - self.mean) / self.deviation
        return on_device(self.scaling.tokens(samples.windows)), on_device(scores[:, None])

    def square_error(self, network: Any, rows: Any) -> Any:
        return (network(self.tokens[rows]) - self.scores[rows]).square().mean()

    def measure_held_error(self, network: Any) -> float:
        return float((predict(network, self.held_tokens) - self.held_scores).square().mean())

    def fit(self, network: Any, recipe: Recipe, seed: int, advance: Advance) -> int:
        """Train on all rows; the passes made."""
        return train(
            network,
            lambda rows: self.square_error(network, rows),
            len(self),
            recipe,
            seed=seed,
            advance=advance,
            held_loss=lambda: self.measure_held_error(network),
        )


def fit_transformer(
    lesson: Lesson,
    seed: int,
    advance: Advance,
    *,
    size: Size = PAPER,
    recipe: Recipe = TRANSFORMER,
) -> tuple[NetworkModel, int]:
    """The model, and the passes made."""
    network = fresh(lambda: EncoderNetwork(size, size.layers, size.heads), seed)
    passes = lesson.fit(network, recipe, seed, advance)
    encoder = encoder_of(network, lesson.mean, lesson.deviation)
    return NetworkModel(Experts(lesson.scaling, (encoder,))), passes


def fit_mixture(
    lesson: Lesson,
    seed: int,
    advance: Advance,
    *,
    size: Size = PAPER,
    expert_recipe: Recipe = EXPERT,
    recipe: Recipe = MIXTURE,
) -> tuple[NetworkModel, int]:
    """Each expert first learns a tenth of the first half in time, then all learn together."""
    network = fresh(lambda: MixtureNetwork(size), seed)
    tenths = np.array_split(np.arange(len(lesson) // 2), size.experts)
    for number, (expert, rows) in enumerate(zip(network.experts, tenths, strict=True)):
        fit_expert(lesson, expert, rows, expert_recipe, seed + number)
        advance(1)
    passes = lesson.fit(network, recipe, seed, advance)
    encoders = tuple(
        encoder_of(expert, lesson.mean, lesson.deviation) for expert in network.experts
    )
    return NetworkModel(Experts(lesson.scaling, encoders), gate_of(network)), passes


def fit_expert(lesson: Lesson, expert: Any, rows: Any, recipe: Recipe, seed: int) -> None:
    """Samples come in order of time, so consecutive rows are one stretch of it."""
    first, last = int(rows[0]), int(rows[-1]) + 1
    train(
        expert,
        lambda batch: lesson.square_error(expert, batch + first),
        last - first,
        replace(recipe, batch=min(recipe.batch, last - first)),
        seed=seed,
        advance=int,
    )
