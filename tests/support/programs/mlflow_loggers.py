"""Trainings whose library logs to MLflow by itself, as its users switch that on."""

import os
from typing import Any

import torch

from laxity import Training

ROWS = torch.arange(12.0).reshape(6, 2)


class Net(torch.nn.Module):  # type: ignore[misc]  # untyped where PyTorch is not installed
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.layer(x).square().mean()}


def accelerate(training: Training, gates: str) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(log_with="mlflow", cpu=True)
    accelerator.init_trackers("project", config={"alpha": 0.5})
    for epoch in training.epochs():
        accelerator.log({"loss": 1 / epoch}, step=epoch)
    accelerator.end_training()


def transformers(training: Training, gates: str) -> None:
    from transformers import Trainer, TrainingArguments

    for _ in training.epochs():
        arguments = TrainingArguments(
            gates, num_train_epochs=1, logging_steps=1, use_cpu=True, save_strategy="no",
            report_to=["mlflow"], disable_tqdm=True, learning_rate=0.5,
        )  # fmt: skip
        Trainer(Net(), arguments, train_dataset=[{"x": row} for row in ROWS]).train()


def lightning(training: Training, gates: str) -> None:
    import lightning as pl
    from lightning.pytorch.loggers import MLFlowLogger

    class Lit(pl.LightningModule):  # type: ignore[misc]  # untyped where Lightning is not installed
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()
            self.save_hyperparameters({"alpha": 0.5})

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            loss = self.net(batch)["loss"]
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    logger = MLFlowLogger(run_id=training.run_id, tracking_uri=os.environ["MLFLOW_TRACKING_URI"])
    for _ in training.epochs():
        trainer = pl.Trainer(
            max_epochs=1, logger=logger, enable_checkpointing=False, accelerator="cpu",
            enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=1,
        )  # fmt: skip
        trainer.fit(Lit(), torch.utils.data.DataLoader(ROWS, batch_size=3))
