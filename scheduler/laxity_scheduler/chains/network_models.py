"""Mirage's networks as models: two that predict hours, and policies that choose an action.

`transformer` and `mixture` predict the hours of difference. `dqn` has a value for waiting and one for
submitting. `transformer_pg` and `mixture_pg` weigh the two actions by what a trained transformer, or
each expert of a trained mixture, predicts. Where training draws an action, a decision takes the
likelier one: the same queue gives the same answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.array_file import collect_arrays
from laxity_scheduler.chains.features import Singles, Windows
from laxity_scheduler.chains.networks import (
    Encoder,
    GatingNetwork,
    Scaling,
    encoder_arrays,
    read_encoder,
    read_part,
)
from laxity_scheduler.frame.arrays import Bools

WAIT, SUBMIT = 0, 1
SCALING: Final = "scaling"
GATE: Final = "gate"


@dataclass(frozen=True, slots=True)
class Experts:
    """Encoders that see the same scaled windows; a transformer is one expert."""

    scaling: Scaling
    encoders: tuple[Encoder, ...]

    def values(self, tokens: Singles) -> Singles:
        """(n, experts * values of each)."""
        return np.concatenate([encoder.values(tokens) for encoder in self.encoders], axis=1)

    def arrays(self) -> dict[str, Any]:
        arrays = collect_arrays(SCALING, self.scaling)
        for number, encoder in enumerate(self.encoders):
            arrays |= encoder_arrays(f"expert{number}", encoder)
        return arrays

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Any]) -> "Experts":
        count = sum(name.startswith("expert") and name.endswith(".embed") for name in arrays)
        if not count:
            raise ValueError("it holds no network")
        encoders = tuple(read_encoder(f"expert{number}", arrays) for number in range(count))
        return cls(read_part(Scaling, SCALING, arrays), encoders)


@dataclass(frozen=True, slots=True)
class NetworkModel:
    """`transformer` without a gate, `mixture` with one: hours of difference."""

    experts: Experts
    gate: GatingNetwork | None = None

    @property
    def weights(self) -> Floats:
        return np.ones(1)

    def predict_h(self, windows: Windows) -> Floats:
        tokens = self.experts.scaling.tokens(windows)
        values = self.experts.values(tokens)
        if self.gate is not None:
            values = (values * self.gate.shares(tokens)).sum(axis=1, keepdims=True)
        return values.astype(np.float64)

    def arrays(self) -> dict[str, Any]:
        gate = {} if self.gate is None else collect_arrays(GATE, self.gate)
        return self.experts.arrays() | gate

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Any]) -> "NetworkModel":
        gated = any(name.startswith(GATE) for name in arrays)
        gate = read_part(GatingNetwork, GATE, arrays) if gated else None
        return cls(Experts.of_arrays(arrays), gate)


@dataclass(frozen=True, slots=True)
class PolicyModel:
    """Chooses between waiting and submitting.

    `head` is (values of all experts, 2) and `head_bias` (2,): what each action gains by each value.
    """

    experts: Experts
    head: Singles
    head_bias: Singles

    def actions(self, windows: Windows) -> Singles:
        """What speaks for each action, (n, 2)."""
        values = self.experts.values(self.experts.scaling.tokens(windows))
        actions: Singles = values @ self.head + self.head_bias
        return actions

    def submits(self, windows: Windows) -> Bools:
        """Whether to submit now, (n,)."""
        actions = self.actions(windows)
        return actions[:, SUBMIT] >= actions[:, WAIT]

    def arrays(self) -> dict[str, Any]:
        return {**self.experts.arrays(), "head": self.head, "head_bias": self.head_bias}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Any]) -> "PolicyModel":
        return cls(Experts.of_arrays(arrays), arrays["head"], arrays["head_bias"])
