"""A script for `accelerate launch` or torchrun, as its user has it: it knows nothing of laxity.

Its only argument is the folder to which each process writes what it saw: losses, and weights at the end.
"""

import json
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

BATCH = 16  # of all processes together

accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
rows = torch.randn(64, 4)
data = TensorDataset(rows, rows.sum(dim=1, keepdim=True))
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loader = DataLoader(data, batch_size=BATCH // accelerator.num_processes)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
losses = []
for _ in range(4):
    for inputs, want in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), want)
        accelerator.backward(loss)
        optimizer.step()
        losses.append(accelerator.reduce(loss.detach(), "mean").item())
seen = {
    "processes": accelerator.num_processes,
    "losses": losses,
    "weights": [values.tolist() for values in accelerator.unwrap_model(model).parameters()],
}
Path(sys.argv[1], f"rank-{accelerator.process_index}").write_text(json.dumps(seen))
accelerator.end_training()
