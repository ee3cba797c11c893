"""Trainings for torchrun and the like, as users have them: no word of laxity's own group."""

import json
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from laxity import Training
from tests.support.programs.trainings import note, wait_at_gate

ROWS = torch.randn(32, 4, generator=torch.Generator().manual_seed(1))
WANT = ROWS.sum(dim=1, keepdim=True)
BATCH = 16  # of all workers together
LAUNCHED = {  # at the import of the training's file
    name: os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR")
}


def make_model() -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.05)


def write_end(gates: str, rank: int, model: Any) -> None:
    weights = [parameter.tolist() for parameter in model.parameters()]
    (Path(gates) / f"end-{rank}").write_text(json.dumps(weights))


def with_ddp(training: Training, gates: str) -> dict[str, Any]:
    """A process group by env://, made before anything is asked of laxity."""
    dist.init_process_group("gloo")
    rank, width = dist.get_rank(), dist.get_world_size()
    model, optimizer = make_model()
    training.restore(model, optimizer)
    parallel = DistributedDataParallel(model)
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    if (Path(gates) / "loads").exists():
        child.start()  # as a loader of data
    for epoch in training.epochs():
        note(gates, training, "began", world=width, launched=LAUNCHED, child=child.pid)
        wait_at_gate(gates, epoch)
        for first in range(rank * BATCH // width, len(ROWS), BATCH):
            rows = slice(first, first + BATCH // width)
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(parallel(ROWS[rows]), WANT[rows])
            loss.backward()
            optimizer.step()
            whole = loss.detach() / width
            dist.all_reduce(whole)
        training.log(loss=float(whole))
    write_end(gates, rank, model)
    if child.pid:
        child.kill()
    dist.destroy_process_group()
    return {"world": width, "loss": training.last("loss")}


def with_accelerate(training: Training, gates: str) -> dict[str, Any]:
    from accelerate import Accelerator
    from torch.utils.data import DataLoader, TensorDataset

    accelerator = Accelerator(cpu=True)
    width = accelerator.num_processes
    model, optimizer = make_model()
    training.restore(model, optimizer)
    loader = DataLoader(TensorDataset(ROWS, WANT), batch_size=BATCH // width)
    parallel, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in training.epochs():
        note(gates, training, "began", world=width, launched=LAUNCHED, child=None)
        wait_at_gate(gates, epoch)
        for rows, want in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(parallel(rows), want)
            accelerator.backward(loss)
            optimizer.step()
            whole = accelerator.reduce(loss.detach(), "mean")
        training.log(loss=float(whole))
    write_end(gates, accelerator.process_index, model)
    accelerator.end_training()
    return {"world": width, "main": accelerator.is_main_process, "loss": training.last("loss")}


def with_lightning(training: Training, gates: str) -> dict[str, Any]:
    """Its Trainer counts the epochs by itself, and is one of as many nodes as there are workers."""
    import lightning
    from lightning.pytorch.utilities import disable_possible_user_warnings
    from torch.utils.data import DataLoader, TensorDataset

    import laxity.lightning

    disable_possible_user_warnings()

    class Net(lightning.LightningModule):  # type: ignore[misc]  # as in lightning_flow.py
        def __init__(self) -> None:
            super().__init__()
            self.model, self.optimizer = make_model()

        def on_train_epoch_start(self) -> None:
            world = self.trainer.world_size
            note(gates, training, "began", world=world, launched=LAUNCHED, child=None)
            wait_at_gate(gates, self.trainer.current_epoch + 1)

        def training_step(self, batch: Any, _: int) -> Any:
            rows, want = batch
            loss = torch.nn.functional.mse_loss(self.model(rows), want)
            whole = self.trainer.strategy.reduce(loss.detach(), reduce_op="mean")
            self.log("loss", whole)
            return loss

        def configure_optimizers(self) -> Any:
            return self.optimizer

    width = training.workers
    loader = DataLoader(TensorDataset(ROWS, WANT), batch_size=BATCH // width, shuffle=False)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, num_nodes=width, strategy="ddp", max_epochs=4,
        logger=False, enable_checkpointing=False, enable_progress_bar=False,
    )  # fmt: skip
    net = Net()
    trainer.fit(net, loader, ckpt_path=laxity.lightning.resume())
    write_end(gates, trainer.global_rank, net.model)
    return {"world": trainer.world_size, "loss": training.last("loss")}
