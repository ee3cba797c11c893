"""Gradients for the scoring net: PyTorch, which this module alone imports, on one thread.

The net has the layers of a `ScoringNet` and becomes one when it is trained. Rows of a choice are padded
to the longest of their batch.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import torch

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Bools
from laxity_scheduler.learned.job_features import FEATURES
from laxity_scheduler.learned.scoring_net import ScoringNet

HIDDEN: Final = 32
BATCH: Final = 256
NEVER: Final = -1e9
RATE: Final = 0.003  # of imitation, at first
GRADIENT_RATE: Final = 0.0003  # at 0.001 nets were best after 40 episodes, then worse than at first


def make_net(seed: int, inputs: int = len(FEATURES)) -> Any:
    """Layers of random weights, in double precision."""
    torch.manual_seed(seed)
    return _stack_layers((inputs, HIDDEN, HIDDEN, 1))


def make_random_net(seed: int) -> ScoringNet:
    """A net that has learned nothing."""
    return read_net(make_net(seed))


def read_net(net: Any) -> ScoringNet:
    """This net in NumPy."""
    layers = [layer for layer in net if isinstance(layer, torch.nn.Linear)]
    return ScoringNet(
        tuple([layer.weight.detach().numpy().T.copy() for layer in layers]),
        tuple([layer.bias.detach().numpy().copy() for layer in layers]),
    )


def write_net(policy: ScoringNet) -> Any:
    """The same layers for training on, whatever their sizes."""
    net = _stack_layers([policy.weights[0].shape[0], *map(len, policy.biases)])
    layers = [layer for layer in net if isinstance(layer, torch.nn.Linear)]
    with torch.no_grad():
        for layer, weight, bias in zip(layers, policy.weights, policy.biases, strict=True):
            layer.weight.copy_(torch.from_numpy(weight.T.copy()))
            layer.bias.copy_(torch.from_numpy(bias.copy()))
    return net


def _stack_layers(sizes: Sequence[int]) -> Any:
    torch.set_num_threads(1)
    layers: list[Any] = []
    for inputs, outputs in pairwise(sizes):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1]).double()  # scores may be negative


def make_adam(net: Any, rate: float) -> Any:
    return torch.optim.Adam(net.parameters(), lr=rate)


def imitate(
    net: Any,
    choices: Sequence[tuple[Floats, Bools]],
    *,
    updates: int,
    seed: int,
    rate: float = RATE,
    tell: Callable[[int], None] = lambda _: None,
) -> None:
    """Cross-entropy on what was right: -log of the sum of its probabilities (Adam, batches of 256)."""
    draw, adam = np.random.default_rng(seed), make_adam(net, rate)
    for update in range(updates):
        for group in adam.param_groups:  # to a tenth at the end
            group["lr"] = rate * (1.0 - 0.9 * update / updates)
        batch = [choices[row] for row in draw.integers(len(choices), size=BATCH)]
        logs = log_probabilities(net, [rows for rows, _ in batch])
        right = pad([mask.astype(np.float64) for _, mask in batch])
        loss = -torch.logsumexp(logs + NEVER * (1.0 - right), 1).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        tell(1)


def log_probabilities(net: Any, states: Sequence[Floats]) -> Any:
    """Of each row of each state, (B, most rows); of padding about -1e9."""
    widest = max(len(rows) for rows in states)
    values = np.zeros((len(states), widest, states[0].shape[1]))
    absent = np.ones((len(states), widest))
    for number, rows in enumerate(states):
        values[number, : len(rows)] = rows
        absent[number, : len(rows)] = 0.0
    scores = net(torch.from_numpy(values))[:, :, 0] + NEVER * torch.from_numpy(absent)
    return torch.log_softmax(scores, 1)


def pad(rows: Sequence[Floats]) -> Any:
    """Rows of different lengths as one tensor, zeros at their ends."""
    padded = np.zeros((len(rows), max(map(len, rows))))
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
    return torch.from_numpy(padded)


class PolicyGradient:
    """A scoring net that learns from what its steps are credited with."""

    def __init__(self, policy: ScoringNet, *, entropy: float) -> None:
        self._net, self._entropy = write_net(policy), entropy
        self._adam = make_adam(self._net, GRADIENT_RATE)

    def policy(self) -> ScoringNet:
        return read_net(self._net)

    def improve(self, steps: Sequence[Any], credit: Floats) -> None:
        """One step of Adam on drawn steps (`DrawnStep`s) and the credit of each, (n,)."""
        logs = log_probabilities(self._net, [step.rows for step in steps])
        places = torch.tensor([step.place for step in steps])
        advantages = torch.from_numpy(credit)
        chosen = logs.gather(1, places[:, None])[:, 0]
        entropy = -(logs.exp() * logs.clamp(min=-50.0)).sum(1)
        loss = -(chosen * advantages).mean() - self._entropy * entropy.mean()
        self._adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._net.parameters(), 1.0)
        self._adam.step()
