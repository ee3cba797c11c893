"""PyTorch trainings for tests: one plain, one with DDP."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from laxity import Training
from laxity.pytorch import Distributed, EvenSampler
from tests.support.programs.trainings import note, wait_at_gate

ROWS = torch.randn(32, 4, generator=torch.Generator().manual_seed(1))
WANT = ROWS.sum(dim=1, keepdim=True)


def made(seed: int = 0) -> tuple[Any, Any]:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1))
    return model, torch.optim.Adam(model.parameters(), lr=0.05)


def step(model: Any, optimizer: Any, rows: Any, want: Any) -> float:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(rows), want)
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def plain(training: Training, gates: str) -> float:
    model, optimizer = made()
    training.restore(model, optimizer, torch.default_generator)
    for epoch in training.epochs():
        note(gates, training, "began")
        wait_at_gate(gates, epoch)
        training.log(loss=step(model, optimizer, *training.shard((ROWS, WANT), seed=3)))
        training.average(model)
    return training.last("loss")


def randomly(training: Training, gates: str) -> list[float]:
    """Draws from all generators, also between its restoring and its first epoch."""
    model, optimizer = made()
    random.seed(1)
    np.random.seed(2)  # noqa: NPY002 - as older code does
    training.restore(model, optimizer, random=True)
    loader = DataLoader(TensorDataset(ROWS, WANT), batch_size=8, shuffle=True)
    drawn = [random.random(), np.random.random(), float(torch.rand(1))]  # noqa: NPY002
    for epoch in training.epochs():
        note(gates, training, "began", drawn=drawn)
        wait_at_gate(gates, epoch)
        for rows, want in loader:
            noise = random.random() + np.random.random()  # noqa: NPY002
            loss = step(model, optimizer, rows + noise, want)
        training.log(loss=loss, python=random.random())
    return [*next(model.parameters()).flatten().tolist(), random.random()]


def distributed(training: Training, gates: str) -> None:
    model, optimizer = made(seed=training.rank)
    training.restore(model, optimizer)
    parallel = Distributed(training, model)
    sampler = EvenSampler(training, ROWS, seed=5)
    for epoch in training.epochs():
        note(gates, training, "began")
        wait_at_gate(gates, epoch)
        mine = list(sampler)
        for first in range(0, len(mine), 8):
            rows = mine[first : first + 8]
            training.log(loss=step(parallel, optimizer, ROWS[rows], WANT[rows]))
    weights = [parameter.tolist() for parameter in model.parameters()]
    (Path(gates) / f"end-{training.rank}").write_text(json.dumps(weights))
