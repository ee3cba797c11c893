"""DL2's critic: what each job trains in a slot, expected from its features. It needs PyTorch."""

import torch

from laxity_lab.policy_training import torch_net
from laxity_profiler.estimate import Floats


class Critic:
    """Expects which share of its iterations a job trains in a slot, from its first step's features."""

    def __init__(self, seed: int) -> None:
        self._net = torch_net.make_net(seed)
        self._adam = torch_net.make_adam(self._net, torch_net.RATE)

    def expect(self, rows: Floats) -> Floats:
        """Shape (n, F) to (n,)."""
        return torch_net.read_net(self._net).score(rows)

    def improve(self, rows: Floats, trained: Floats) -> None:
        """One step of Adam on the squared error; `trained` has shape (n,)."""
        errors = self._net(torch.from_numpy(rows))[:, 0] - torch.from_numpy(trained)
        loss = (errors**2).mean()
        self._adam.zero_grad()
        loss.backward()
        self._adam.step()
