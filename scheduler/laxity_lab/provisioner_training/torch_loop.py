"""The one training loop of all networks: on a GPU where PyTorch sees one, else on the CPU.

Batches are drawn by the seed. Where weeks are held out, the weights of the best pass over them are
kept, and the training ends early once no pass has been better for `patience`. So the error on these
weeks is a little too good; no other data is looked at.
"""

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn

Advance = Callable[[int], object]
AT_ONCE: Final = 512  # rows that are only predicted


@dataclass(frozen=True, slots=True)
class Recipe:
    """At most so many passes, rows of a batch, Adam's rate, passes without gain before the end."""

    passes: int
    batch: int
    rate: float
    patience: int = 20


def device() -> Any:
    """Where networks are trained."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def device_name() -> str:
    """The card's name, or CPU."""
    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else "CPU"


def train(
    network: Any,
    loss_of: Callable[[Any], Any],
    rows: int,
    recipe: Recipe,
    *,
    seed: int,
    advance: Advance,
    held_loss: Callable[[], float] | None = None,
) -> int:
    """Lower the mean of `loss_of` over batches of the rows; the passes made.

    ValueError if the loss stops being a number.
    """
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=recipe.rate)
    best, best_loss, best_pass = None, math.inf, 0
    for number in range(1, recipe.passes + 1):
        network.train()
        for batch in torch.randperm(rows, generator=generator).split(recipe.batch):
            step(optimizer, loss_of, batch.to(device()))
        advance(1)
        if held_loss is None:
            continue
        network.eval()
        loss = held_loss()
        if not math.isfinite(loss):
            raise ValueError(f"the training lost its way in pass {number}: the loss is {loss}")
        if loss < best_loss:
            best, best_loss, best_pass = deepcopy(network.state_dict()), loss, number
        elif number - best_pass >= recipe.patience:
            break
    if best is not None:
        network.load_state_dict(best)
    network.eval()
    return best_pass or recipe.passes


def step(optimizer: Any, loss_of: Callable[[Any], Any], batch: Any) -> None:
    """One step down; half precision where a GPU has it, as only there it is faster."""
    optimizer.zero_grad(set_to_none=True)
    with half_precision():
        loss = loss_of(batch)
    loss.backward()
    optimizer.step()


def half_precision() -> Any:
    return torch.autocast(device().type, torch.bfloat16, enabled=device().type == "cuda")


def predict(network: Any, tokens: Any) -> Any:
    """Values, (n, values), without training, in the precision that a decision has."""
    network.eval()
    with torch.no_grad():
        return torch.cat([network(part) for part in tokens.split(AT_ONCE)])


def on_device(array: Any) -> Any:
    return torch.as_tensor(array, dtype=torch.float32, device=device())


def fresh(make: Callable[[], Any], seed: int) -> Any:
    """A network with weights drawn by the seed."""
    torch.manual_seed(seed)
    network: nn.Module = make()
    return network.to(device())
