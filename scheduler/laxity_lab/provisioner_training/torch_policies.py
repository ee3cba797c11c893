"""Policies that learn from episodes when to submit: a Q-network, and REINFORCE on a trained model.

`dqn` is reconstructed, as the paper's release has none: the transformer with a value for each action.
Since the simulator tells what submitting leads to at every hour, both actions of every step are
learned from, without exploring. Submitting is worth its negative cost; waiting is worth what the
better action of the next hour is worth to a copy of the network that is renewed after each pass.
Hours are not discounted, since a discount would pay for putting a loss off.

Policy gradient is the release's: only two linear outputs on a trained transformer's prediction, or on
those of the ten experts, learn; the reward is minus 60 per hour at the user's prices, at the end.
Ours: predictions come in as standard scores, and the pass that costs least on held-out weeks is kept.
"""

from copy import deepcopy
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from laxity_lab.provisioner_training.samples import Episodes
from laxity_lab.provisioner_training.torch_loop import (
    Advance,
    Recipe,
    device,
    fresh,
    on_device,
    predict,
    train,
)
from laxity_lab.provisioner_training.torch_modules import (
    PAPER,
    EncoderNetwork,
    Size,
    encoder_of,
    single,
)
from laxity_profiler.estimate import Floats
from laxity_scheduler.chains.features import Singles
from laxity_scheduler.chains.network_models import SUBMIT, WAIT, Experts, PolicyModel
from laxity_scheduler.chains.networks import NEARLY_ZERO, scale_of

DQN: Final = Recipe(passes=30, batch=128, rate=1e-4, patience=10)
POLICY_GRADIENT: Final = Recipe(passes=40, batch=32, rate=1e-2)
DISCOUNT: Final = 0.99
ENTROPY: Final = 0.1
REWARD_PER_HOUR: Final = -60.0
KEPT_OF_MEAN: Final = 0.9  # of the running mean of rewards, at each update


def fit_dqn(
    training: Episodes,
    held: Episodes,
    seed: int,
    advance: Advance,
    *,
    size: Size = PAPER,
    recipe: Recipe = DQN,
) -> tuple[PolicyModel, int]:
    """The policy, and the passes made."""
    scaling = scale_of(training.samples.windows)
    tokens, held_tokens = (
        on_device(scaling.tokens(part.samples.windows)) for part in (training, held)
    )
    worth = on_device(-training.cost / (training.cost.std() or 1.0)).flatten()
    network = fresh(lambda: EncoderNetwork(size, size.layers, size.heads, values=2), seed)
    older = deepcopy(network).eval()
    steps = training.steps
    decisions = torch.arange(len(worth), device=device()).reshape(-1, steps)[:, :-1].flatten()

    def loss_of(batch: Any) -> Any:
        rows = decisions[batch]
        with torch.no_grad():
            later = older(tokens[rows + 1]).float()
        is_end = (rows + 1) % steps == steps - 1
        best = torch.where(is_end, worth[rows + 1], later.max(dim=1).values)
        wanted = torch.stack((best, worth[rows]), dim=1)  # of WAIT and of SUBMIT
        return nn.functional.smooth_l1_loss(network(tokens[rows]).float(), wanted)

    def renew(passes: int) -> None:
        older.load_state_dict(network.state_dict())
        advance(passes)

    def measure_held_cost() -> float:
        return greedy_cost(held, predict(network, held_tokens).cpu().numpy())

    passes = train(
        network,
        loss_of,
        len(decisions),
        recipe,
        seed=seed,
        advance=renew,
        held_loss=measure_held_cost,
    )
    experts = Experts(scaling, (encoder_of(network),))
    return PolicyModel(experts, np.eye(2, dtype=np.float32), np.zeros(2, np.float32)), passes


def fit_policy_gradient(
    experts: Experts,
    training: Episodes,
    held: Episodes,
    seed: int,
    advance: Advance,
    *,
    recipe: Recipe = POLICY_GRADIENT,
) -> tuple[PolicyModel, int]:
    """REINFORCE (Williams 1992) on what the experts, which stay as they are, predict."""
    values = expert_values(experts, training)
    mean, deviation = values.mean(axis=(0, 1)), values.std(axis=(0, 1)) + NEARLY_ZERO
    states, held_states = (
        on_device((part - mean) / deviation) for part in (values, expert_values(experts, held))
    )
    head = fresh(lambda: nn.Linear(states.shape[2], 2), seed)
    reward = on_device(REWARD_PER_HOUR * training.cost)
    draws = torch.Generator().manual_seed(seed)
    usual = Usual()

    def loss_of(batch: Any) -> Any:
        return reinforce_loss(head(states[batch]).float(), reward[batch], usual, draws)

    def measure_held_cost() -> float:
        return greedy_cost(held, predict(head, held_states).flatten(0, 1).cpu().numpy())

    passes = train(
        head,
        loss_of,
        len(training),
        recipe,
        seed=seed,
        advance=advance,
        held_loss=measure_held_cost,
    )
    weight, bias = (part.detach().cpu().numpy() for part in (head.weight, head.bias))
    scaled = weight.T / deviation[:, None]
    return PolicyModel(experts, single(scaled), single(bias - mean @ scaled)), passes


class Usual:
    """The running mean of rewards, which each reward is compared with."""

    def __init__(self) -> None:
        self.reward: Any = None

    def renew(self, reward: Any) -> Any:
        """The mean so far, this reward counted in."""
        before = reward if self.reward is None else self.reward
        self.reward = KEPT_OF_MEAN * before + (1 - KEPT_OF_MEAN) * reward
        return self.reward


def reinforce_loss(logits: Any, reward: Any, usual: Usual, draws: Any) -> Any:
    """Of drawn lives: logits (starts, steps, 2), rewards of submitting (starts, steps)."""
    starts, steps = reward.shape
    chances = torch.log_softmax(logits, dim=2)
    drawn = torch.rand((starts, steps), generator=draws).to(reward.device)
    submits = drawn < chances[:, :, SUBMIT].exp()
    submits[:, -1] = True
    last = submits.float().argmax(dim=1, keepdim=True)
    step = torch.arange(steps, device=reward.device)[None]
    lived = (step <= last) & (step < steps - 1)  # the end leaves no choice
    action = torch.where(step == last, chances[:, :, SUBMIT], chances[:, :, WAIT])
    gained = reward.gather(1, last)
    gain = DISCOUNT ** (last - step).clamp(min=0) * gained - usual.renew(gained.mean())
    entropy = -(chances.exp() * chances).sum(dim=2)
    return -((action * gain + ENTROPY * entropy) * lived).sum(dim=1).mean()


def expert_values(experts: Experts, episodes: Episodes) -> Singles:
    """What each expert predicts at each step, (starts, steps, values)."""
    values = experts.values(experts.scaling.tokens(episodes.samples.windows))
    return values.reshape(len(episodes), episodes.steps, -1)


def greedy_cost(episodes: Episodes, actions: Singles) -> float:
    """The mean cost where the likelier action is taken, by actions (starts * steps, 2)."""
    submits = (actions[:, SUBMIT] >= actions[:, WAIT]).reshape(len(episodes), -1)
    costs: Floats = episodes.cost[np.arange(len(episodes)), episodes.chosen_steps(submits)]
    return float(costs.mean())
